"""Reads YAML with line numbers, and without its surprising conversions.

Only null, true, false and numbers are special, so that a region called `no`, the postcode 01234 and a date stay what
they are; and a key that stands twice is an error, not a value lost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from dpsql.errors import Place, SchemaError
from dpsql.schema.problems import Document, KeyPath

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - filled below, in place of YAML 1.1's

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        # JSON may write an emoji as the escapes of two halves, which YAML leaves apart.
        halves = super().construct_scalar(node).encode("utf-16-le", "surrogatepass")
        return halves.decode("utf-16-le", "surrogatepass")


for tag, pattern, first_characters in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]{0,99})", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first_characters)


def read_yaml(text: str, file: str) -> tuple[object, Document]:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise SchemaError(f"{file}: the file is empty", hint="declare at least one table")
        document = Document(file, dict(_places(node, (), text, file)))
        return loader.construct_document(node), document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = None if mark is None else Place(text, mark.index, mark.index)
        raise SchemaError(
            f"{file}: not valid YAML: {error.problem}",
            at=at,
            hint="check the indentation, colons and quotes on this line",
        ) from None
    except yaml.YAMLError as error:
        raise SchemaError(f"{file}: not valid YAML: {error}", hint="save the schema as plain text") from None
    except (ValueError, LookupError, AttributeError):
        raise SchemaError(
            f"{file}: not valid YAML: a !!tag does not match its value", hint="leave the tags out"
        ) from None
    except RecursionError:
        raise SchemaError(f"{file}: the file is nested too deeply", hint="a schema is six levels deep") from None


def _places(node: yaml.Node, path: KeyPath, text: str, file: str) -> Iterator[tuple[KeyPath, Place]]:
    """Every path of the file with its place: `key: value` if it is one line, otherwise just the key."""
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, Place] = {}
        for key, value in node.value:
            end = value if value.end_mark.line == key.start_mark.line else key
            place = Place(text, key.start_mark.index, end.end_mark.index - 1)
            if not isinstance(key, yaml.ScalarNode):
                raise SchemaError(f"{file}: a list or a mapping cannot be a key", at=place, hint="write a name")
            here = (*path, key.value)
            if key.value in seen:
                raise SchemaError(
                    f'{file}: {".".join(here)}: "{key.value}" appears twice',
                    at=place,
                    hint=f"keep one; the other is on line {seen[key.value].line}",
                )
            seen[key.value] = place
            yield here, place
            yield from _places(value, here, text, file)
