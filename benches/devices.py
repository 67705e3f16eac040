#!/usr/bin/env python3
"""Puts records/devices/README.md and its charts together from the records that lie there.

The records are made by hand, on each device, by the commands that the page names; this only sets them side by side with
`zen-edge compare`, so that the page and the files cannot drift apart.

    python3 benches/devices.py path/to/zen-edge
"""

import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "records" / "devices"
CONDITIONS = FOLDER / "conditions.md"


def compare(program, files, *more):
    words = [program, "compare", *[str(file) for file in files], *more]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = sys.argv[1]
    models = {}
    for file in sorted(FOLDER.glob("*.json")):
        record = json.loads(file.read_text())
        models.setdefault(record["model"].get("name") or record["model"]["architecture"], []).append((file, record))
    out = [CONDITIONS.read_text().rstrip(), ""]
    for model, records in models.items():
        facts = records[0][1]["model"]
        out += [
            f"## {model}",
            "",
            f"{facts['architecture']}, {facts['layers']} layers of {facts['hidden_size']}; {facts['multiply_adds'] / 1e6:,.1f} M multiply-adds and "
            f"{facts['weight_bytes'] / 1e6:,.1f} MB of weights a token, the LM head {facts.get('head_bytes', 0) / 1e6:,.1f} MB.",
            "",
        ]
        for file, record in records:
            device, engine = record["device"], record["engine"]
            on = ", ".join(word for word in (device.get("cpu"), device.get("browser"), device["platform"]) if word)
            out.append(f"* [{file.name}]({file.name}): {on}; {engine['build']}, {record['date']}")
            for limits in record["limits"]:
                read = ", ".join(
                    f"{one['bytes_per_second'] / 1e9:.1f} GB/s from {one['bytes'] / 1e6:.1f} MB" for one in limits["read"]
                )
                int8 = limits["int8_multiply_adds_per_second"] / 1e9
                threads = f"{limits['threads']} thread{'' if limits['threads'] == 1 else 's'}"
                out.append(f"  * {limits['isa']}, {threads}: reads {read}; {int8:,.1f} G int8 multiply-adds/s")
            out += [f"  * note: {warning['message']}" for warning in record["warnings"]]
        chart = f"{pathlib.Path(model).stem}.svg"
        files = [file for file, _ in records]
        table = compare(program, files, "--md", "--svg", str(FOLDER / chart))
        out += ["", table.rstrip(), "", f"![Chart of the same figures]({chart})", ""]
    (FOLDER / "README.md").write_text("\n".join(out))


if __name__ == "__main__":
    main()
