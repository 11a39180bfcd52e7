"""df.dp: private queries about a data frame, as methods.

The accessor is registered once dpsql and the frame's library are both imported, in either order: neither library can
announce it without being imported, and importing them here would make dpsql slow to import.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

ACCESSORS = {"pandas": "dpsql.pandas", "polars": "dpsql.polars"}


class OpenAfterImport(MetaPathFinder):
    """An import hook that registers the accessor after pandas or polars is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in ACCESSORS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_open(module: ModuleType) -> None:
            load(module)
            import_module(ACCESSORS[fullname])

        spec.loader.exec_module = load_and_open  # type: ignore[method-assign]
        return spec


def register_accessors() -> None:
    for library, accessor in ACCESSORS.items():
        if library in sys.modules:
            import_module(accessor)
    sys.meta_path.insert(0, OpenAfterImport())
