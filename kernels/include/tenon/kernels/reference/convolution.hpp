// Reference convolutions: the chains and sums of convolution.hpp, written as loops. In no table: where a
// kernel set has no convolutions, windows and products compute them.
#pragma once

#include <cmath>
#include <tenon/kernels/convolution.hpp>
#include <vector>

namespace tenon::kernels::reference {

/// Calls term(row, column, offset) for the offsets of the window at place (i, j), in order; padding too.
template <class Term>
void for_convolution_offsets(const Window& w, std::int64_t i, std::int64_t j, Term term) {
  for (std::int64_t r = 0; r < w.kernel[1]; ++r)
    for (std::int64_t s = 0; s < w.kernel[2]; ++s)
      term(i * w.stride[1] - w.pad[1] + r * w.dilation[1], j * w.stride[2] - w.pad[2] + s * w.dilation[2],
           r * w.kernel[2] + s);
}

inline float convolution_element(const float* plane, const std::int64_t* extent, std::int64_t i,
                                 std::int64_t j) {
  return i >= 0 && i < extent[1] && j >= 0 && j < extent[2] ? plane[i * extent[2] + j] : 0.0f;
}

inline void convolution_forward(const ConvolutionArgs& args) {
  const Window& w = args.window;
  const std::int64_t elements = w.in[1] * w.in[2], offsets = w.kernel[1] * w.kernel[2];
  float* y = args.y;
  for (std::int64_t b = 0; b < args.batch; ++b)
    for (std::int64_t f = 0; f < args.features; ++f)
      for (std::int64_t i = 0; i < w.out[1]; ++i)
        for (std::int64_t j = 0; j < w.out[2]; ++j) {
          float sum = 0;
          for (std::int64_t c = 0; c < args.channels; ++c)
            for_convolution_offsets(w, i, j, [&](std::int64_t row, std::int64_t column, std::int64_t offset) {
              const float x =
                  convolution_element(args.x + (b * args.channels + c) * elements, w.in, row, column);
              sum = std::fma(args.w[(f * args.channels + c) * offsets + offset], x, sum);
            });
          *y++ = args.bias != nullptr ? sum + args.bias[f] : sum;
        }
}

inline void convolution_backward_input(const ConvolutionArgs& args) {
  const Window& w = args.window;
  const std::int64_t places = w.out[1] * w.out[2], offsets = w.kernel[1] * w.kernel[2];
  float* dx = args.dx;
  for (std::int64_t b = 0; b < args.batch; ++b)
    for (std::int64_t c = 0; c < args.channels; ++c)
      for (std::int64_t i = 0; i < w.in[1]; ++i)
        for (std::int64_t j = 0; j < w.in[2]; ++j, ++dx) {
          float sum = args.accumulate ? *dx : 0.0f;
          for (std::int64_t f = 0; f < args.features; ++f)
            for (std::int64_t r = 0; r < w.kernel[1]; ++r)
              for (std::int64_t s = 0; s < w.kernel[2]; ++s) {
                const std::int64_t row = i + w.pad[1] - r * w.dilation[1],
                                   column = j + w.pad[2] - s * w.dilation[2];
                if (row % w.stride[1] != 0 || column % w.stride[2] != 0) continue;
                const float dy = convolution_element(args.dy + (b * args.features + f) * places, w.out,
                                                     row / w.stride[1], column / w.stride[2]);
                sum = std::fma(args.w[(f * args.channels + c) * offsets + r * w.kernel[2] + s], dy, sum);
              }
          *dx = sum;
        }
}

/// The sum over one region of one element of dw: chains of the lanes, each over its points, folded by halves.
inline float convolution_region_sum(const ConvolutionArgs& args, const ConvolutionRegions& regions,
                                    std::int64_t region, std::int64_t f, std::int64_t c, std::int64_t r,
                                    std::int64_t s) {
  const Window& w = args.window;
  const std::int64_t first = region / regions.bands * regions.samples,
                     begin = region % regions.bands * regions.rows;
  float lanes[kLanes] = {};
  for (std::int64_t b = first; b < first + regions.samples && b < args.batch; ++b) {
    const float *x = args.x + (b * args.channels + c) * w.in[1] * w.in[2],
                *dy = args.dy + (b * args.features + f) * w.out[1] * w.out[2];
    int lane = 0;
    for (std::int64_t i = begin; i < begin + regions.rows && i < w.out[1]; ++i)
      for (std::int64_t j = 0; j < w.out[2]; ++j, lane = (lane + 1) % kLanes)
        lanes[lane] = std::fma(dy[i * w.out[2] + j],
                               convolution_element(x, w.in, i * w.stride[1] - w.pad[1] + r * w.dilation[1],
                                                   j * w.stride[2] - w.pad[2] + s * w.dilation[2]),
                               lanes[lane]);
  }
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

inline void convolution_backward_weight(const ConvolutionArgs& args) {
  const Window& w = args.window;
  const ConvolutionWeightShares shares = convolution_weight_shares(args);
  float* dw = args.dw;
  for (std::int64_t f = 0; f < args.features; ++f)
    for (std::int64_t c = 0; c < args.channels; ++c)
      for (std::int64_t r = 0; r < w.kernel[1]; ++r)
        for (std::int64_t s = 0; s < w.kernel[2]; ++s, ++dw) {
          float sum = 0;
          for (std::int64_t g = 0; g < shares.groups; ++g) {
            const std::int64_t begin = g * shares.regions.count / shares.groups,
                               end = (g + 1) * shares.regions.count / shares.groups;
            float group = convolution_region_sum(args, shares.regions, begin, f, c, r, s);
            for (std::int64_t region = begin + 1; region < end; ++region)
              group += convolution_region_sum(args, shares.regions, region, f, c, r, s);
            sum = g == 0 ? group : sum + group;
          }
          *dw = args.accumulate ? *dw + sum : sum;
        }
}

}  // namespace tenon::kernels::reference
