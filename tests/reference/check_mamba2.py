"""Compares mamba2.py with the Mamba2Mixer of Hugging Face transformers at the recorded weights, in float64.

Guards against one misreading shared by Tenon and mamba2.py. Their rows stand kind after kind, so ours are put in their order.
Exits with 1 above the tolerance; also shows that a norm before the gate, taps of the convolution in reverse, and rows in the
other order would be noticed. Needs transformers; writes nothing.
"""

import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

import record
from mamba2 import CASES

TOLERANCE = 1e-5  # relative to the largest element; they scan and norm in float32; measured below 1e-6


def kind_after_kind(rows, groups, widths):
    """Rows of [group][kind] as [kind][group]."""
    parts = rows.unflatten(0, (groups, -1)).split(widths, 1)
    return torch.cat([part.flatten(0, 1) for part in parts])


def their_mixer(case, recorded):
    heads, groups, P, N, conv, time, width, bounds, _ = CASES[case]
    inner = heads * P
    config = Mamba2Config(num_heads=heads, head_dim=P, hidden_size=width, state_size=N, expand=inner // width, conv_kernel=conv,
                          n_groups=groups, chunk_size=4, layer_norm_epsilon=1e-5, num_hidden_layers=1, use_bias=False,
                          use_conv_bias=True, vocab_size=8,
                          time_step_limit=bounds if bounds != (0.0, 0.0) else (0.0, float("inf")))
    mixer = Mamba2Mixer(config, 0).double()
    own = {name: recorded[f"{case}.{name}"].double()
           for name in ("in_proj", "conv_weight", "conv_bias", "dt_bias", "A_log", "D", "gain", "out_proj")}
    of_group = inner // groups
    channels = [of_group, N, N]
    theirs = {"in_proj.weight": kind_after_kind(own["in_proj"], groups, [of_group, *channels, heads // groups]),
              "conv1d.weight": kind_after_kind(own["conv_weight"], groups, channels),
              "conv1d.bias": kind_after_kind(own["conv_bias"], groups, channels), "dt_bias": own["dt_bias"],
              "A_log": own["A_log"], "D": own["D"], "norm.weight": own["gain"], "out_proj.weight": own["out_proj"]}
    mixer.load_state_dict(theirs)
    return mixer


def variants(mixer, groups):
    """Mixers that are wrong in one way each."""
    def norm_first(hidden, gate=None):
        norm = type(mixer.norm).forward(mixer.norm, hidden)
        return norm if gate is None else norm * F.silu(gate)

    yield "norm before the gate", lambda: setattr(mixer.norm, "forward", norm_first), lambda: delattr(mixer.norm, "forward")
    taps = mixer.conv1d.weight.data
    yield ("taps of the convolution in reverse", lambda: setattr(mixer.conv1d.weight, "data", taps.flip(-1)),
           lambda: setattr(mixer.conv1d.weight, "data", taps))
    if groups == 1:
        return
    right = mixer.in_proj.weight.data
    mixed = right.unflatten(0, (groups, -1)).transpose(0, 1).flatten(0, 1) if right.shape[0] % groups == 0 else right.flip(0)
    yield ("rows in another order", lambda: setattr(mixer.in_proj.weight, "data", mixed),
           lambda: setattr(mixer.in_proj.weight, "data", right))


def main():
    torch.set_num_threads(1)
    recorded, failed = load_file(record.FOLDER / "mamba2.safetensors"), False
    for case in CASES:
        if CASES[case][-1] is not None:
            continue  # their mixer has no documents
        mixer = their_mixer(case, recorded)
        x = recorded[f"{case}.x"].double().requires_grad_()
        d_y = recorded[f"{case}.d_y"].double()
        y = mixer(x)
        (d_x,) = torch.autograd.grad(y, x, d_y)
        errors = {"y": record.relative_error(y.detach(), recorded[f"{case}.y"]),
                  "d_x": record.relative_error(d_x, recorded[f"{case}.d_x"])}
        failed |= max(errors.values()) > TOLERANCE
        print(case, {name: f"{error:.2g}" for name, error in errors.items()})
        for name, begin, end in variants(mixer, CASES[case][1]):
            begin()
            error = record.relative_error(mixer(x).detach(), recorded[f"{case}.y"])
            end()
            failed |= error < 100 * TOLERANCE
            print(f"  {name}: {error:.2g}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
