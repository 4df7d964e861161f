"""PyTorch peer of quantize.cpp: NVFP4 in blocks of 1x16, rounded to nearest, vectorised. Prints GB/s of input.

The same operations in the same order: tensor scale from amax, E4M3 block scales, E2M1 values times block scale in bf16.
"""
import argparse
import time

import torch


def quantize(x):
    amax = x.abs().amax().float()
    encode = 2688.0 / amax
    decode = 1.0 / encode
    blocks = x.float().view(x.shape[0], -1, 16)
    largest = blocks.abs().amax(-1, keepdim=True)
    scales = (largest * (encode * (1.0 / 6.0))).clamp(max=448.0).to(torch.float8_e4m3fn)
    wide = scales.float()
    scaled = (blocks * (1.0 / (wide * decode))).clamp(-6.0, 6.0)
    magnitude = scaled.abs()
    step = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    rounded = torch.round(scaled / step) * step
    return (rounded * wide).to(torch.bfloat16), scales, decode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["eager", "compiled"], default="eager")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    x = torch.randn(options.rows, options.columns).to(torch.bfloat16)
    run = torch.compile(quantize) if options.mode == "compiled" else quantize
    run(x)
    begin = time.perf_counter()
    for _ in range(options.steps):
        run(x)
    print(x.numel() * 2e-9 * options.steps / (time.perf_counter() - begin))


if __name__ == "__main__":
    main()
