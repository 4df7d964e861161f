"""The package safetensors on exports and on the files of a checkpoint, and its writer against ours, byte for byte."""

import pathlib
import sys

import safetensors
import safetensors.torch
import torch

from tenon_runs import Run

failures = 0


def say(holds, text):
    global failures
    failures += not holds
    print(f"- {text}{'' if holds else ': **fails**'}")


def main():
    tenon, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    run = Run(tenon, folder / "run", steps=4)
    print("## safetensors\n")
    single = safetensors.torch.load_file(run.export("f32") / "model.safetensors")
    half = safetensors.torch.load_file(run.export("bf16", "--dtype", "bf16") / "model.safetensors")
    stored = safetensors.torch.load_file(run.checkpoint())

    same = all(torch.equal(value, stored["replica0/model/" + name]) for name, value in single.items())
    say(same and len(single) > 20, f"export: {len(single)} tensors, equal to those of the checkpoint")
    rounded = all(torch.equal(half[name], value.to(torch.bfloat16)) for name, value in single.items())
    say(rounded and half.keys() == single.keys(), "export --dtype bf16: equal to torch's rounding of the f32 export")
    moments = [name for name in stored if "optimizer.exp_avg" in name]
    say(len(moments) == 2 * len(single), f"file of a checkpoint: {len(stored)} tensors, {len(moments)} of them moments")
    with safetensors.safe_open(folder / "run/f32/model.safetensors", "pt") as file:
        say(file.metadata() == {"format": "pt"}, f"metadata: {file.metadata()}")
    for name, tensors in {"f32": single, "bf16": half}.items():
        written = safetensors.torch.save(tensors, metadata={"format": "pt"})
        say(written == (folder / f"run/{name}/model.safetensors").read_bytes(),
            f"the package writes the {name} export with the same {len(written):,} bytes")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
