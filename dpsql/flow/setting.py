"""What the stages from the charge on hold besides their input: the engine, the account, a scratch database."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.accounting.budget import Budget
from dpsql.errors import InterfaceError
from dpsql.flow.public_rows import EnginePublicRows
from dpsql.flow.public_setting import PublicSetting

if TYPE_CHECKING:
    from dpsql.accounting.ledger import Ledger
    from dpsql.engines.engine import Engine
    from dpsql.engines.scratch import Scratch
    from dpsql.schema.model import Schema


@dataclass(frozen=True)
class Setting:
    schema: Schema
    engine: Engine
    ledger: Ledger
    scratch: Scratch
    process: int = field(default_factory=os.getpid)

    def public(self) -> PublicSetting:
        """What of this everybody may know, now."""
        budget = self.ledger.budget
        return PublicSetting(
            self.schema,
            self.engine.guarantees,
            self.engine.render,
            EnginePublicRows(self.engine, self.schema),
            self.scratch,
            Budget(budget.filter, budget.tally),
            self.ledger.answers,
        )

    def check_process(self) -> None:
        """DuckDB's threads do not survive a fork: in a child it would wait for them for ever."""
        if self.process != os.getpid():
            raise InterfaceError(
                "this connection was opened by the process that this one was forked from",
                hint="connect in this process; an account in a file is found again",
            )
