"""What Hydra, OmegaConf and YAML raise, as one line and the nearest thing to type instead."""

from __future__ import annotations

import contextlib
import difflib
import re
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Any, get_origin

import yaml  # type: ignore[import-untyped]
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException

from slurmkit.config.register import APP_SCHEMA
from slurmkit.config.written import hint_of, key_of
from slurmkit.errors import ConfigError, SlurmkitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hydra.core.config_loader import ConfigLoader

__all__ = ["USER_ERRORS", "explain", "explained", "keys_of", "known_keys"]

#: What a wrong value raises where a composed config is turned into our dataclasses.
USER_ERRORS = (HydraException, OmegaConfBaseException, FrozenInstanceError, TypeError, ValueError)

_NO_KEY = re.compile(r"Key '.*?' (?:is )?not in |Could not override|cannot assign to field")
#: Lists of which each item is one word, and no line of bash.
_WORDS = ("payload.command", "resources.srun_args", "hydra.launcher.resources.srun_args")
_IN_FILE = re.compile(r"In '([^']+)': (?:\w+ raised while composing config:\s+)?(.*)", re.DOTALL)


def _no_options(group: str) -> Sequence[str]:
    del group
    return ()


@contextlib.contextmanager
def explained(
    overrides: Sequence[str],
    known_keys: Callable[[Sequence[str]], set[str]],
    options_of: Callable[[str], Sequence[str]] = _no_options,
    kinds: tuple[type[Exception], ...] = (Exception,),
) -> Iterator[None]:
    """Turn whatever goes wrong inside into a ``ConfigError``; ours pass as they are.

    Args:
        overrides: as in ``explain``.
        known_keys: as in ``explain``.
        options_of: as in ``explain``.
        kinds: what a user can cause inside. Hydra's composition reads nothing but the user's files and
            words, and lets through what its parts raise.

    Raises:
        ConfigError: for all of these kinds.
    """
    try:
        yield
    except SlurmkitError:
        raise
    except kinds as error:
        raise explain(error, overrides, known_keys, options_of) from error


def explain(
    error: Exception,
    overrides: Sequence[str],
    known_keys: Callable[[Sequence[str]], set[str]],
    options_of: Callable[[str], Sequence[str]] = _no_options,
) -> ConfigError:
    """Say what was wrong.

    Args:
        error: what Hydra, OmegaConf, YAML or a dataclass raised.
        overrides: the words that were composed.
        known_keys: gets the overrides that are not at fault; returns the keys that the config has with them.
        options_of: the configs of a group by its name (of the root: the empty name).
    """
    return (
        _unreadable(error, overrides)
        or _sweep(error)
        or _no_variable(error)
        or _bad_choice(error, overrides, options_of)
        or _bad_file(error)
        or _no_list(error, overrides)
        or _bad_key(error, overrides, known_keys)
    )


def _unreadable(error: Exception, overrides: Sequence[str]) -> ConfigError | None:
    """An override, or an interpolation in a file, that is no grammar."""
    if isinstance(error, OverrideParseException):
        word = error.override or " ".join(overrides)
        return ConfigError(
            f"Hydra cannot read the override {word!r}",
            "write key=value, and quote a value with special characters: 'key=\"a, b\"'",
        )
    found: BaseException | None = error
    while found is not None and not isinstance(found, GrammarParseError):
        found = found.__cause__
    if found is None:
        return None
    key = re.search(r"full_key: (\S+)", str(found))
    return ConfigError(
        f"{key[1] + ': ' if key else ''}an interpolation that cannot be read: {str(found).splitlines()[0]}",
        "write it as ${key}, and a dollar sign of your own as \\${",
    )


def _sweep(error: Exception) -> ConfigError | None:
    """Several values without ``-m``."""
    word = re.search(r"(?:Ambiguous value for argument|Sweep parameters) '(.+?)'(?:\n| requires)", str(error))
    if word is None:
        return None
    key, _, value = word[1].partition("=")
    return ConfigError(
        f"{word[1]}: several values for one key are a sweep",
        f"to run it as one: slurmkit submit -m {word[1]}; one list is {key}=[{value}], one text '{key}=\"{value}\"'",
    )


def _no_variable(error: Exception) -> ConfigError | None:
    """``${HOME}``: a shell's variable to a person, a key of the config to Hydra. So is ``${x}`` of a sweep over x."""
    found = re.search(
        r"Interpolation key '(\w+)' not found(?:.*?full_key: (payload\.command|[\w.]+))?",
        str(error),
        re.DOTALL,
    )
    if found is None:
        return None
    name, where = found[1], found[2] or ""
    message = f"{where + ': ' if where else ''}Interpolation key '{name}' not found: to Hydra ${{{name}}} is a key of the config"
    if name.isupper():
        hint = f"its value here is ${{oc.env:{name}}}; for bash to read it on the node, in env.setup or bash -c, write \\${{{name}}}"
    elif where == "payload.command":
        hint = f"in a sweep each point's words follow the command by themselves, as {name}=1; a dollar sign of your own is \\${{"
    else:
        return None
    return ConfigError(message, hint)


def _bad_file(error: Exception) -> ConfigError | None:
    """A file that is no YAML, or no config."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return ConfigError(
            f"{mark.name}:{mark.line + 1}: {error.problem}", "mend the YAML there: blanks, brackets, quotes"
        )
    if isinstance(error, (yaml.YAMLError, UnicodeDecodeError)):
        return ConfigError(
            f"a config file is no text in UTF-8: {_lines(error)[0]}", "save it as UTF-8, without a mark"
        )
    below = re.search(r"In '((\w+)/[^']+)'.*Key '\2' not in '_App'", str(error), re.DOTALL)
    if below:
        return ConfigError(
            f"{below[1]}.yaml: its keys lie below {below[2]!r}, where the config has none",
            "begin the file with the line: # @package _global_",
        )
    absent = re.search(r"In '([^']+)': Could not (?:find|load) '([^']+)'", str(error))
    if absent:
        name = absent[2].rpartition("/")
        return ConfigError(
            f"{absent[1]}.yaml: there is no config {absent[2]!r}",
            f"names are looked for beside the file; from the top, write: /{name[0].rpartition('/')[2]}: {name[2]}",
        )
    defaults = re.search(r"Invalid defaults list in '([^']+)', defaults must be a list (.*)", str(error))
    if defaults:
        return ConfigError(
            f"{defaults[1]}.yaml: its defaults are no list {defaults[2]}",
            "write each of them with a dash before it: - override /model: gpt",
        )
    return None


def _no_list(error: Exception, overrides: Sequence[str]) -> ConfigError | None:
    """One word where the schema has a list of them: ``payload.command=ls``."""
    if "is not a ListConfig, list or tuple" not in f"{error} {error.__cause__}":
        return None
    for word in overrides:
        key, _, value = word.lstrip("+").partition("=")
        if get_origin(hint_of(key)) is list and not value.startswith("["):
            text = value.strip("'\"")
            words = text.split() if key in _WORDS and text else [f"'{text}'"]
            quote = '"' if "'" in words[0] else "'"
            return ConfigError(
                f"{key}: got {value}, accepted is a list",
                f"write it in brackets: {quote}{key}=[{','.join(words)}]{quote}",
            )
    return None


def _bad_choice(
    error: Exception, overrides: Sequence[str], options_of: Callable[[str], Sequence[str]]
) -> ConfigError | None:
    """A config or a group's choice that does not exist."""
    text = str(error)
    options = re.search(
        r"Could not find '([^']+)'\s+Available options in '([^']+)':\s+(.*?)(?:\n\n|Config search path|$)",
        text,
        re.DOTALL,
    )
    if options:
        group = options[2]
        return _no_choice(group, options[1].removeprefix(f"{group}/"), options[3].split())
    if isinstance(error, MissingConfigException) and "primary config" in text:
        listed = [name for name in options_of("") if name != APP_SCHEMA and not name.startswith("_")]
        near = (difflib.get_close_matches(str(error.missing_cfg_file), listed, 1) or ["config"])[0]
        return ConfigError(
            f"--config-name: there is no config {error.missing_cfg_file!r}; accepted are {', '.join(listed)}",
            f"did you mean --config-name {near}? Another folder of configs: --config-dir DIR",
        )
    if "Config group override must be a string or a list" in text:
        for group, value in (item.split("=", 1) for item in overrides if "=" in item):
            listed = list(options_of(key_of(group)))
            if listed and value not in listed:
                return _no_choice(key_of(group), value, listed)
    return None


def _no_choice(group: str, wanted: str, listed: Sequence[str]) -> ConfigError:
    near = (difflib.get_close_matches(wanted, listed, 1, 0.0) or [""])[0]
    return ConfigError(
        f"{group}: got {wanted!r}; accepted are {', '.join(listed)}", f"did you mean {group}={near}?"
    )


def _bad_key(
    error: Exception, overrides: Sequence[str], known_keys: Callable[[Sequence[str]], set[str]]
) -> ConfigError:
    """A key that does not exist, or a value that it does not take."""
    text = str(error)
    in_file = _IN_FILE.match(text)
    where = f"{in_file[1]}.yaml: " if in_file else ""
    key = _failed_key(text, () if in_file else overrides)
    if key is not None and "is not Optional" in f"{text} {error.__cause__}":
        return ConfigError(f"{where}{key}: got null, accepted is a value", f"leave {key} out for its default")
    if key is not None and _NO_KEY.search(text):
        known = known_keys([item for item in overrides if key_of(item) != key] if not in_file else ())
        if known and key not in known:
            near = difflib.get_close_matches(key, sorted(known), 3, 0.5)
            tops = ", ".join(sorted(name for name in known if "." not in name))
            hint = f"did you mean {' or '.join(near)}?" if near else f"at the top are {tops}"
            return ConfigError(f"{where}there is no config key {key!r}", hint)
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else None
    said = _lines(in_file[2] if in_file else cause or error)
    if key is None:
        hint = "; ".join(said[1:3]) or "see the whole config with: python -m trainer --cfg job"
        return ConfigError(where + said[0], hint)
    where += "" if key in said[0] else f"{key}: "
    group = key.rpartition(".")[0] or key
    return ConfigError(
        where + said[0], f"see what is accepted with: python -m trainer --cfg job --package {group}"
    )


def _lines(error: object) -> list[str]:
    found = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in found if not line.startswith(("full_key", "object_type", "Config search path"))]
    return list(filter(None, ours)) or [type(error).__name__]


def _failed_key(text: str, overrides: Sequence[str]) -> str | None:
    """The key that the error speaks of: Hydra and OmegaConf name it in several ways."""
    keys = [key for key in map(key_of, overrides) if key]
    field = re.search(r"cannot assign to field '(\w+)'", text)
    if field:  # a frozen dataclass knows nothing but the last word
        return next((key for key in keys if key.rpartition(".")[2] == field[1]), field[1])
    match = re.search(r"full_key: (\S+)", text)
    if match and "." not in match[1]:
        # OmegaConf may know nothing but the last word, too.
        return next((key for key in keys if key.rpartition(".")[2] == match[1]), match[1])
    if match:
        return match[1]
    return next((key for key in keys if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w])", text)), None)


def known_keys(
    compose: Callable[[Sequence[str]], DictConfig], loader: ConfigLoader, others: Sequence[str]
) -> set[str]:
    """Every group, and every key of the config as some overrides make it (or as it is without any).

    Args:
        compose: Hydra's composition of a list of overrides.
        loader: lists the groups.
        others: the overrides that are not at fault.
    """
    try:
        config = compose(others)
    except Exception:  # noqa: BLE001 - the config itself may be broken: then no key of it is known
        return known_keys(compose, loader, []) if others else set()
    return {group for group in loader.list_groups("") if group != "hydra"} | keys_of(config)


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
