"""Hydra's and OmegaConf's errors as one line and the nearest thing to type instead."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from slurmkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["check_choices", "explain", "keys_of"]

_UNREADABLE = (
    "LexerNoViableAlt",
    "mismatched input",
    "no viable alternative",
    "extraneous input",
    "missing ",
)


def explain(
    error: Exception, overrides: Sequence[str], known_keys: Callable[[Sequence[str]], set[str]]
) -> ConfigError:
    """Say what was wrong.

    Args:
        error: what Hydra or OmegaConf raised.
        overrides: the words that were composed.
        known_keys: gets the overrides that are not at fault; returns the keys that the config has with them.
    """
    text = str(error)
    options = re.search(
        r"Could not find '([^']+)'\s+Available options in '([^']+)':\s+(.*?)(?:\n\n|Config search path|$)",
        text,
        re.DOTALL,
    )
    if options:
        wanted, group, listed = options[1].rpartition("/")[2], options[2], options[3].split()
        near = (difflib.get_close_matches(wanted, listed, 1, 0.0) or [""])[0]
        return ConfigError(
            f"{group}: got {wanted!r}; accepted are {', '.join(listed)}", f"did you mean {group}={near}?"
        )
    if any(mark in text for mark in _UNREADABLE):
        word = next((item for item in overrides if item in text), " ".join(overrides))
        return ConfigError(
            f"Hydra cannot read the override {word!r}",
            "write key=value, and quote a value with special characters: 'key=\"a, b\"'",
        )
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else None
    lines = [line.strip() for line in str(cause or error).splitlines() if line.strip()]
    key = _failed_key(text, overrides)
    if key is None:
        return ConfigError(
            lines[0], "; ".join(lines[1:3]) or "see the whole config with: python -m trainer --cfg job"
        )
    known = known_keys([item for item in overrides if _key(item) != key])
    if known and key not in known:
        near_keys = difflib.get_close_matches(key, sorted(known), 3, 0.5)
        tops = ", ".join(sorted(name for name in known if "." not in name))
        return ConfigError(
            f"there is no config key {key!r}",
            f"did you mean {' or '.join(near_keys)}?" if near_keys else f"at the top are {tops}",
        )
    where = "" if key in lines[0] else f"{key}: "
    return ConfigError(
        where + lines[0], f"show what is accepted with --cfg job --package {key.rpartition('.')[0] or key}"
    )


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def _failed_key(text: str, overrides: Sequence[str]) -> str | None:
    """The key of the override that the error speaks of: Hydra quotes it in several ways."""
    for key in map(_key, overrides):
        if key and re.search(rf"(?<![\w.]){re.escape(key)}(?![\w])", text):
            return key
    match = re.search(r"full_key: (\S+)", text)
    return match[1] if match else None


def keys_of(config: DictConfig) -> set[str]:
    """Every dotted key of a composed config but Hydra's own."""
    return {key for key in _walk(config, "") if key.partition(".")[0] != "hydra"}


def _walk(node: Any, prefix: str) -> Iterator[str]:
    for name in node:
        yield f"{prefix}{name}"
        child = (
            None if OmegaConf.is_missing(node, name) or OmegaConf.is_interpolation(node, name) else node[name]
        )
        if isinstance(child, DictConfig):
            yield from _walk(child, f"{prefix}{name}.")


def check_choices(points: Sequence[Sequence[str]], options_of: Callable[[str], Sequence[str]]) -> None:
    """Refuse a point that chooses a config that does not exist, without composing anything.

    Args:
        points: one list of overrides a point of a sweep.
        options_of: the configs of a group by its name; none for a key that is no group.

    Raises:
        ConfigError: naming the group, the choice and the options.
    """
    known: dict[str, Sequence[str]] = {}
    for override in {override for point in points for override in point}:
        key, _, choice = override.partition("=")
        group = key.lstrip("+").partition("@")[0]
        options = known.setdefault(group, options_of(group))
        if options and choice not in options and choice != "null":
            near = (difflib.get_close_matches(choice, options, 1, 0.0) or [""])[0]
            raise ConfigError(
                f"{group}: got {choice!r}; accepted are {', '.join(options)}", f"did you mean {group}={near}?"
            )
