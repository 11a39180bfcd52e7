"""What every stage may look at besides its input: the declared schema, the engine, the account, a scratch database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.limits import MOST_PUBLIC_GROUPS

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
    max_public_groups: int = MOST_PUBLIC_GROUPS
