"""What a decision costs without the backbone, what a known prompt costs, what a known beginning saves.

    python benches/memory_cost.py [MODEL.gguf HEADS_DIR]...

Builds and runs tests/examples/memory_cost.rs for the default pack, and for each pair that is named.
"""

import json
import subprocess
import sys

from record import ROOT, keep

WORDS = ["cargo", "run", "--release", "-q", "-p", "zen-edge-tests", "--example", "memory_cost", "--"]


def run(pair):
    done = subprocess.run([*WORDS, *pair], cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main():
    words = sys.argv[1:]
    pairs = [[]] + [words[i : i + 2] for i in range(0, len(words), 2)]
    runs = [run(pair) for pair in pairs]
    ms = lambda us: f"{us / 1e3:.2f}"
    lines = ["Without the backbone, µs (p50 / p99 of 2,000):", ""]
    lines += ["| | rules alone | heads and decision | a repeated prompt, whole | the same with a user |", "|---|--:|--:|--:|--:|"]
    for r in runs:
        cells = [r[k] for k in ("rules_us", "heads_and_decision_us", "repeated_us", "repeated_with_user_us")]
        lines.append(f"| {r['model']} | " + " | ".join(f"{c['p50']} / {c['p99']}" for c in cells) + " |")
    lines += ["", "A prompt that begins as an earlier one, ms (medians, the same bits):", ""]
    lines += ["| | tokens | cold | three new tokens behind a known beginning | repeated |", "|---|--:|--:|--:|--:|"]
    for r in runs:
        for row in r["lengths"]:
            longer = f"{ms(row['longer_us'])} ({row['new_tokens']} read)"
            lines.append(f"| {r['model']} | {row['tokens']} | {ms(row['cold_us'])} | {longer} | {row['repeated_us'] / 1e3:.3f} |")
    lines += ["", "Typing 176 characters, five at a time, ms for an update:", ""]
    lines += ["| | session, p50 / p99 | anew, p50 / p99 |", "|---|--:|--:|"]
    for r in runs:
        t = r["typing_us"]
        lines.append(f"| {r['model']} | {ms(t['draft_p50'])} / {ms(t['draft_p99'])} | {ms(t['alone_p50'])} / {ms(t['alone_p99'])} |")
    lines += ["", f"{runs[0]['threads']} threads, {runs[0]['isa']}."]
    keep("memory-cost", {"runs": runs}, "\n".join(lines))


main()
