"""Exported weights in transformers (GPT-Neo, Nemotron-H, Mamba-2): the same validation loss, another one under wrong settings."""

import pathlib
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from tenon_runs import HYBRID, Run

LOSS_TOLERANCE = 1e-4
# float32 moves these mean losses by about 1e-8; the wrong form of GELU moves them by more than 1e-6.
GELU_TOLERANCE = 2e-7

failures = 0


def loss_of(run, model):
    total, count = 0.0, 0
    for tokens, targets in run.validation_windows():
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0].double()
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="sum").item()
        count += len(targets)
    return total / count


def row(name, tenon, other, holds, condition):
    global failures
    failures += not holds
    print(f"| {name} | {tenon:.7f} | {other:.7f} | {abs(other - tenon):.1e} | {condition} {'' if holds else '**fails**'}|")


def compare(run, folder, name, tolerance, wrong):
    """`wrong`: settings of transformers under which the loss must differ by more than the tolerance."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ours, theirs = run.validation_loss(), loss_of(run, model)
    row(name, ours, theirs, abs(theirs - ours) <= tolerance, f"<= {tolerance:g}")
    for key, value in wrong.items():
        config = AutoConfig.from_pretrained(folder, **{key: value})
        other = loss_of(run, AutoModelForCausalLM.from_pretrained(folder, config=config).eval())
        row(f"... with {key} = {value}", ours, other, abs(other - ours) > tolerance, f"> {tolerance:g}")


def main():
    tenon, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    print("## transformers\n\nValidation loss of `tenon train` and of `AutoModelForCausalLM.from_pretrained` on what "
          "`tenon export` wrote (2 layers, width 32,\n4 heads, context 64, 250 steps, 20 where the form of GELU is compared, 60 with Mamba-2 layers). Rows with a wrong setting show "
          "that the comparison would notice it.\n")
    print("| model | Tenon | transformers | difference | required |\n|---|---|---|---|---|")
    plain = Run(tenon, folder / "plain", 'attention = ["global"]')
    compare(plain, plain.export("hf"), "global attention", LOSS_TOLERANCE, {})
    window = Run(tenon, folder / "window", "window = 8")
    compare(window, window.export("hf"), "global and local, window 8", LOSS_TOLERANCE, {"window_size": 256, "num_heads": 2})
    scaled = Run(tenon, folder / "scaled", "scale_logits = true")
    compare(scaled, scaled.export("hf"), "attention logits divided by sqrt(d)", LOSS_TOLERANCE, {})
    for form, other in (("gelu_tanh", "gelu"), ("gelu_exact", "gelu_new")):
        gelu = Run(tenon, folder / form, f'activation = "{form}"\ninit_scale = 0.2', steps=20)
        compare(gelu, gelu.export("hf"), f"GELU: {form}", GELU_TOLERANCE, {"activation_function": other})
    for name, more, wrong in (
        ("hybrid", 'pattern = "M-M*-M-"\nmamba_groups = 2\n', {"layer_norm_epsilon": 0.1}),
        ("hybrid, time steps from 0.01", 'pattern = "M*-"\nmamba_dt_limits = [0.01, 0]\n', {"time_step_min": 0.0}),
        ("Mamba-2, time steps from 0.01 to 0.05", 'pattern = "MM"\nmamba_groups = 4\nmamba_dt_limits = [0.01, 0.05]\n',
         {"time_step_limit": (0.0, float("inf"))})):
        mamba = Run(tenon, folder / name.replace(" ", "_").replace(",", ""), more, steps=60, family=HYBRID)
        compare(mamba, mamba.export("hf"), name, LOSS_TOLERANCE, wrong)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
