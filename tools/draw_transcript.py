"""Run commands for real and draw what they print as an SVG of a terminal, for the README.

Example:
    .venv/bin/python tools/draw_transcript.py docs/images/session.svg \\
        'ultrafast chat "What is the capital of France?"' 'ultrafast bench engine'
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100  # columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path, help="SVG file to write")
    parser.add_argument("commands", nargs="+", help="shell commands, run in this order")
    arguments = parser.parse_args()
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    # The commands of this interpreter's environment come first, as after activating it.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in arguments.commands:
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(command, shell=True, env=environment, check=True, **pipe)
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(done.stdout))
        print(f"$ {command}\n{done.stdout}", end="")
    svg = console.export_svg(title="ultrafast", clear=False)
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)  # no fonts from elsewhere: any monospace will do
    arguments.picture.parent.mkdir(parents=True, exist_ok=True)
    arguments.picture.write_text(svg.replace("Fira Code", "DejaVu Sans Mono"), encoding="utf-8")


if __name__ == "__main__":
    main()
