"""What the records share: the machine, the commit, where they are kept."""

import datetime
import json
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def machine():
    """The processor and how busy the machine is, so that a reader can judge a record."""
    cpu, flags = platform.processor() or platform.machine(), []
    try:
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
            elif line.startswith("flags"):
                known = {"avx2", "fma", "avx_vnni", "avx512_vnni", "amx_int8"}
                flags = sorted(known & set(line.split()))
    except OSError:
        pass
    load = os.getloadavg() if hasattr(os, "getloadavg") else None
    return {"cpu": cpu, "flags": flags, "cores": os.cpu_count(), "os": platform.system(), "load": load}


def commit():
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def arguments(ap, runs):
    """The arguments of the scripts that run the command: models, heads, command, runs, threads."""
    ap.add_argument("--models", type=pathlib.Path, default=ROOT / "target/peers/models")
    ap.add_argument("--heads", type=pathlib.Path, default=ROOT.parent / "shared/data/zen-router")
    ap.add_argument("--command", type=pathlib.Path, help="the built command, else it is built")
    ap.add_argument("--runs", type=int, default=runs)
    ap.add_argument("--threads", type=int, default=os.cpu_count())


def built(command):
    """The command that is measured."""
    if not command:
        subprocess.run(["cargo", "build", "--release"], cwd=ROOT, check=True)
        command = ROOT / "target/release/zen-edge"
    return command


def keep(name, record, table):
    """Writes `records/NAME.json` (raw) and `records/NAME.md` (the table), and prints the table."""
    record = {"date": datetime.date.today().isoformat(), "commit": commit(), "machine": machine(), **record}
    folder = ROOT / "benches" / "records"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    m = record["machine"]
    head = f"{record['date']}, commit {record['commit']}, {m['cpu']}, {m['cores']} cores ({', '.join(m['flags'])}), {m['os']}"
    if m["load"]:
        head += f", load {m['load'][0]:.1f}"
    text = f"# {name}\n\n{head}. Raw figures: `{name}.json`.\n\n{table}\n"
    (folder / f"{name}.md").write_text(text)
    print(text)
