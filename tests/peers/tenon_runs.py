"""Small runs of the program for the scripts of this folder: train, export, and what they say."""

import json
import pathlib
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CONTEXT = 64

RUN = """[run]
name = "tiny"
steps = {steps}
log_every = 10

[device]
type = "cpu"
threads = 1

[data]
type = "text"
path = "text.txt"
context = {context}
batch = 8

[model]
{model}

[optimizer]
type = "adamw"
lr = 1e-2

[recovery]
type = "full"
every = 1000
"""

GPT_NEO = """type = "gpt_neo"
layers = 2
width = 32
heads = 4
"""
HYBRID = """type = "decoder"
width = 32
position = "none"
heads = 4
kv_heads = 2
hidden = 64
ffn = "squared_relu"
mamba_heads = 8
mamba_head_width = 8
mamba_state = 16
mamba_chunk = 16
"""


class Run:
    """A model trained for a few seconds on the first 60,000 bytes of Shakespeare; the last tenth is for validation."""

    def __init__(self, tenon, folder, model="", steps=250, family=GPT_NEO):
        self.tenon, self.folder = tenon, pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.text = (SOURCE / "data/text/tinyshakespeare.txt").read_bytes()[:60000]
        (self.folder / "text.txt").write_bytes(self.text)
        (self.folder / "run.toml").write_text(RUN.format(steps=steps, context=CONTEXT, model=family + model))
        self.call("train", "run.toml", "--quiet")
        self.summary = json.loads((self.folder / "runs/tiny/latest/summary.json").read_text())

    def call(self, *words):
        ended = subprocess.run([self.tenon, *words], cwd=self.folder, capture_output=True, text=True, timeout=300)
        if ended.returncode != 0:
            raise SystemExit(f"tenon {' '.join(words)} ended with {ended.returncode}: {ended.stderr}")
        return ended.stdout

    def export(self, name, *words):
        """Folder that holds model.safetensors and config.json."""
        self.call("export", "runs/tiny", "--out", f"{name}/model.safetensors", *words)
        return self.folder / name

    def checkpoint(self):
        return next((self.folder / "runs/tiny/latest/checkpoints").glob("step-*/*.safetensors"))

    def validation_loss(self):
        return self.summary["metrics"]["val/loss"]

    def validation_windows(self):
        """(tokens, targets) of each window: every byte but the first of the part is predicted once."""
        part = self.text[int(len(self.text) * 0.9):]
        for begin in range(0, len(part) - 1, CONTEXT):
            targets = part[begin + 1:begin + 1 + CONTEXT]
            yield list(part[begin:begin + len(targets)]), list(targets)
