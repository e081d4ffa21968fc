"""Templates to text: Jinja2 that refuses an unknown name, and a `quote` filter for what a shell reads."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import TemplateError

if TYPE_CHECKING:
    import jinja2


def render(name: str, values: Mapping[str, object], override: Path | None = None) -> str:
    """The text of template `name`; `override` is a file to use in its place, or a folder looked into first.

    Raises TemplateError with file, line and reason: no such template, not Jinja2, or a name it does not get.
    """
    import jinja2

    if override is not None and not override.exists():
        raise TemplateError(f"template {override}: no such file or folder", "check the path")
    environment = _environment(override)
    chosen = override.name if override is not None and override.is_file() else name
    try:
        return environment.get_template(chosen).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"template {error.filename or chosen}:{error.lineno}: {error.message}") from error
    except jinja2.TemplateNotFound as error:
        raise TemplateError(f"template {error.name}: not found", f"looked in {_places(override)}") from error
    except jinja2.UndefinedError as error:
        names = ", ".join(sorted(values))
        raise TemplateError(
            f"template {chosen}{_line(error, chosen)}: {error.message}", f"it is given: {names}"
        ) from error
    except (TypeError, ValueError, ArithmeticError, LookupError, UnicodeDecodeError) as error:
        raise TemplateError(f"template {chosen}{_line(error, chosen)}: {error}") from error


def folder() -> Path:
    """Where our templates are: inside the package if it came from a wheel, beside it in a checkout.

    Raises TemplateError if they are in neither place.
    """
    package = Path(__file__).resolve().parents[1]
    looked_in = (package / "templates", package.parent / "templates")
    for place in looked_in:
        if place.is_dir():
            return place
    raise TemplateError(
        f"clusterkit's templates are missing; looked in {looked_in[0]} and {looked_in[1]}",
        "install clusterkit again",
    )


def _environment(override: Path | None) -> jinja2.Environment:
    """No autoescape: it escapes for HTML, which is wrong in a shell script; `quote` is what a shell needs."""
    import jinja2

    first = [] if override is None else [override.parent if override.is_file() else override]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*first, folder()]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = _quote
    environment.filters["comment"] = _comment
    return environment


def _quote(value: object) -> str:
    """`value` as one word of a shell. (`str()` of a name that the template does not get is what raises.)"""
    word = shlex.quote(str(value))
    # `=eth1` is safe in a POSIX shell, but zsh would look for a program `eth1`.
    return f"'{word}'" if word.startswith("=") else word


def _comment(value: object) -> str:
    """`value` on one line, so that it cannot leave its comment."""
    return "".join(character if character.isprintable() else "?" for character in str(value))


def _places(override: Path | None) -> str:
    return str(folder()) if override is None else f"{override} and {folder()}"


def _line(error: BaseException, name: str) -> str:
    """`:LINE` of the template, from the traceback that Jinja2 rewrote to it; nothing where it did not."""
    traceback, line = error.__traceback__, ""
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename.endswith(name):
            line = f":{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line
