"""What a person writes as text arrives as written: ``1e-3`` in a command stays these four characters.

Hydra and YAML read it as a number, and nobody can tell afterwards how it was written. So such words of the
command line are quoted before Hydra reads them, and in a file they are refused with the quoted form.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.overrides_visitor import HydraErrorListener, HydraOverrideVisitor
from hydra.core.override_parser.types import ChoiceSweep, Override
from hydra.errors import HydraException
from hydra.grammar.gen.OverrideLexer import (  # type: ignore[attr-defined]
    CommonTokenStream,
    InputStream,
    OverrideLexer,
)
from hydra.grammar.gen.OverrideParser import OverrideParser
from hydra.types import RunMode
from omegaconf._utils import get_yaml_loader

from slurmkit.config.schema import ASKED, Experiment
from slurmkit.config.training import DataConfig, TrainerConfig
from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig

__all__ = ["as_written", "choices_as_written", "hint_of", "key_of", "misread", "refuse_misread"]


def as_written(overrides: Sequence[str], under: str = "") -> list[str]:
    """Quote what Hydra would take for a number, a bool or null where our schema wants text.

    Args:
        overrides: as typed, such as ``payload.command=[train,--lr,1e-3]``.
        under: only keys below this one are ours, such as ``hydra.launcher.`` in somebody else's app.

    Returns:
        The same, such as ``payload.command=[train,--lr,'1e-3']``. What cannot be read stays as it is:
        Hydra says so.
    """
    return [_quoted(word, under) for word in overrides]


def choices_as_written(override: str) -> list[str] | None:
    """The values of ``key=a,b`` as they were typed; ``None`` for anything else."""
    value = _read(override)._value  # noqa: SLF001 - the public access drops how it was written
    return (
        [str(item) for item in value.list] if isinstance(value, ChoiceSweep) and value.simple_form else None
    )


def key_of(override: str) -> str:
    """The key or the group of an override, without what is to be done with it and where to."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0].strip("/")


def _quoted(word: str, under: str) -> str:
    key = word.partition("=")[0].lstrip("+")
    hint = hint_of(key) if key.startswith(under) else None
    if hint is None:
        return word
    try:
        value = _read(word)._value  # noqa: SLF001
    except HydraException:
        return word
    for literal in reversed(list(_texts(hint, value))):  # from the end, so that positions stay
        word = f"{word[: literal.start]}'{literal.text}'{word[literal.start + len(literal.text) :]}"
    return word


@dataclass(frozen=True)
class _Literal:
    """A word without quotes that Hydra takes for no text, and where in the override it stands."""

    value: Any
    text: str
    start: int


class _Reader(HydraOverrideVisitor):
    """Hydra's own reader of overrides, which keeps where a literal stands."""

    def visitPrimitive(self, ctx: Any) -> Any:  # noqa: N802 - antlr's name
        value = super().visitPrimitive(ctx)
        if value is not None and not isinstance(value, (bool, int, float)):
            return value
        token = next(child.symbol for child in ctx.getChildren() if not self.is_ws(child))
        return _Literal(value, token.text, token.start)

    def visitFunction(self, ctx: Any) -> Any:  # noqa: N802
        """Functions want Hydra's values: ``range(0,3)``."""
        return HydraOverrideVisitor(self.functions).visitFunction(ctx)

    def visitSimpleChoiceSweep(self, ctx: Any) -> ChoiceSweep:  # noqa: N802
        """``a,b``: the text of each."""
        return ChoiceSweep(simple_form=True, list=[child.getText() for child in ctx.element()])


def _read(override: str) -> Override:
    """As ``OverridesParser.parse_rule``, which takes no visitor of ours.

    Raises:
        HydraException: where it is no grammar.
    """
    listener = HydraErrorListener()
    lexer = OverrideLexer(InputStream(override))
    parser = OverrideParser(CommonTokenStream(lexer))
    for recognizer in (lexer, parser):
        recognizer.removeErrorListeners()
        recognizer.addErrorListener(listener)
    read: Override = _Reader(OverridesParser.create().functions).visit(
        parser.override()  # type: ignore[no-untyped-call]
    )
    return read


@functools.cache
def _tops() -> dict[str, Any]:
    hints = get_type_hints(Experiment)
    return {**{name: hints[name] for name in ASKED}, "trainer": TrainerConfig, "data": DataConfig}


def hint_of(key: str) -> Any:
    """The type that our schema has for a dotted key; ``None`` where it has none."""
    first, *rest = key.removeprefix("hydra.launcher.").split(".")
    hint = _tops().get(first)
    for part in rest:
        hint = _child(hint, part)
    return hint


def _child(hint: Any, name: Any) -> Any:
    if is_dataclass(hint):
        return get_type_hints(hint).get(str(name))
    return get_args(hint)[-1] if get_origin(hint) in (dict, list) else None


def _texts(hint: Any, value: Any, *, listed: bool = False) -> Iterator[_Literal]:
    """The literals of a value where the schema wants text."""
    if isinstance(value, _Literal):
        if _is_lost(hint, value.value, value.text, listed=listed):
            yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(_child(hint, name), item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(_child(hint, ""), item, listed=True)


def _is_lost(hint: Any, value: Any, text: str, *, listed: bool) -> bool:
    """Whether a value was meant as text, and cannot be written back as it was: 8 can, 1e-3 cannot.

    ``null`` is no text where a key may be unset; in a list it is a word.
    """
    if value is None:
        return listed and hint is str
    if hint is Any:  # resources.extra: true and false are flags there
        return not isinstance(value, bool) and str(value) != text
    return (hint is str or str in get_args(hint)) and str(value) != text


def refuse_misread(
    loader: ConfigLoader,
    config: DictConfig,
    overrides: Sequence[str],
    under: str = "",
    point: Sequence[str] | None = None,
) -> None:
    """Look at the text of every file that a config was composed of: once loaded, 30:00 and 1800 are the same.

    Args:
        loader: Hydra's, that composed it.
        config: the composed config, with its ``hydra`` node.
        overrides: the words that it was composed of.
        under: only keys below this one count, such as ``hydra.launcher.`` in somebody else's app.
        point: those of them that are new, where the files without them have been looked at: unless one of
            them chooses a config, there is nothing to see (finding the files takes as long as composing).

    Raises:
        ConfigError: naming the file, the line, the key and how to write it.
    """
    groups = {key_of(str(group)) for group in config.hydra.runtime.choices}
    if point is not None and groups.isdisjoint(map(key_of, point)):
        return
    defaults = loader.compute_defaults_list(config.hydra.job.config_name, list(overrides), RunMode.MULTIRUN)
    folders = [folder for source in config.hydra.runtime.config_sources for folder in _folders(source)]
    for item in defaults.defaults:
        file = next(
            (path for path in (Path(it, f"{item.config_path}.yaml") for it in folders) if path.is_file()),
            None,
        )
        if file is None:
            continue
        for key, text, line, what in misread(file.read_text(encoding="utf-8"), item.package or ""):
            if key.startswith(under):
                raise ConfigError(
                    f"{file}:{line}: {key}: {text} without quotes is {what} to YAML",
                    f'write it in quotes: "{text}"',
                )


def misread(text: str, package: str = "") -> Iterator[tuple[str, str, int, str]]:
    """Every value in a YAML text that a person meant as text, or as a time, and YAML reads as something else.

    A number that is written as Python writes it (``OMP_NUM_THREADS: 8``) arrives as written.

    Args:
        text: of a config file.
        package: the key below which its content lies.

    Yields:
        The dotted key, the value as written, its line, and what YAML takes it for.
    """
    loader = get_yaml_loader()
    for key, scalar, listed in _scalars(yaml.compose(text, Loader=loader), package):
        if scalar.style is not None or scalar.tag == "tag:yaml.org,2002:str":
            continue
        value = yaml.load(scalar.value, Loader=loader)  # noqa: S506 - a SafeLoader of OmegaConf's
        hint = _child(hint_of(key), "") if listed else hint_of(key)
        if isinstance(value, (int, float)) and ":" in scalar.value:
            yield key, scalar.value, scalar.start_mark.line + 1, "a number in base 60, not a time,"
        elif _is_lost(hint, value, scalar.value, listed=listed):
            yield key, scalar.value, scalar.start_mark.line + 1, repr(value)


def _scalars(node: Any, key: str, *, listed: bool = False) -> Iterator[tuple[str, Any, bool]]:
    if isinstance(node, yaml.ScalarNode):
        yield key, node, listed
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item, key, listed=True)
    elif isinstance(node, yaml.MappingNode):
        for name, item in node.value:
            yield from _scalars(item, f"{key}.{name.value}" if key else str(name.value))


def _folders(source: Any) -> Iterator[str]:
    if source.schema == "file":
        yield source.path
    elif source.schema == "pkg" and source.provider != "hydra":
        try:
            spec = importlib.util.find_spec(source.path)
        except ImportError:
            return
        yield from (spec.submodule_search_locations or ()) if spec else ()
