"""Memory and time per sample of `reward-loop score` from 10^4 to 10^6 samples.

python benchmarks/file_scoring.py [--sizes 10000 100000 1000000]

Each size runs the real command in a process of its own on a generated Parquet file of GSM8K-like rollouts, with Parquet as
output. Printed are the peak resident memory of the process and the time per sample, and both as ratios to the smallest size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MEMORY_TARGET, TIME_TARGET = 1.25, 1.25
_BATCH = 10_000
_COMMAND = "from reward_loop.cli.main import main; main()"


def batches(count: int) -> Iterator[pa.RecordBatch]:
    """Yield generated rollouts, a tenth of them wrong."""
    for start in range(0, count, _BATCH):
        rows = range(start, min(count, start + _BATCH))
        answers = [row % 997 for row in rows]
        text = "There were {0} apples and 3 were eaten, then {1} more were bought, so the count went up and down. #### {1}"
        yield pa.record_batch(
            {
                "question": [f"How many apples are there after step {row}?" for row in rows],
                "response": [text.format(row, answer + (row % 10 == 0)) for row, answer in zip(rows, answers, strict=True)],
                "ground_truth": [str(answer) for answer in answers],
                "data_source": ["openai/gsm8k"] * len(rows),
            }
        )


def write_rollouts(path: Path, count: int) -> None:
    """Write a Parquet file of `count` rollouts."""
    writer: pq.ParquetWriter | None = None
    for batch in batches(count):
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def score(directory: Path, count: int) -> tuple[float, float]:
    """Return (peak resident MiB, seconds) of scoring `count` rollouts through the command line."""
    rollouts, output = directory / f"{count}.parquet", directory / f"{count}.scored.parquet"
    write_rollouts(rollouts, count)
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", _COMMAND, "score", str(rollouts), "-o", str(output)])
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"reward-loop score failed on {count} rollouts")
    summary = json.loads((directory / f"{output.name}.summary.json").read_text(encoding="utf-8"))
    expected = sum(row % 10 != 0 for row in range(count))
    if summary["rows"] != count or round(summary["reward"]["mean"] * count) != expected:
        raise SystemExit(f"wrong result on {count} rollouts: {summary['rows']} rows, mean {summary['reward']['mean']}")
    rollouts.unlink()
    output.unlink()
    return usage.ru_maxrss / 1024, seconds


def main() -> int:
    """Run the sizes; the exit code says whether memory and time per sample stayed flat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    sizes: list[int] = parser.parse_args().sizes
    with tempfile.TemporaryDirectory() as directory:
        figures = {size: score(Path(directory), size) for size in sizes}
    memory_0, seconds_0 = figures[sizes[0]]
    met = True
    for size, (memory, seconds) in figures.items():
        # Start-up (importing torch) is part of the command, but not of a sample's cost: it is in the first row's figure.
        per_sample = seconds / size
        ratios = memory / memory_0, per_sample / (seconds_0 / sizes[0])
        met &= ratios[0] <= MEMORY_TARGET and ratios[1] <= TIME_TARGET
        print(
            f"{size:>9} samples: peak {memory:6.0f} MiB ({ratios[0]:.2f} x), {seconds:6.1f} s, "
            f"{per_sample * 1e6:6.1f} us per sample ({ratios[1]:.2f} x)"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
