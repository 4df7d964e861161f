// The ways in which this device computes a convolution from images, from which convolution.cpp chooses, and
// the weight gradients of oneDNN that it must not take: tests ask that without the library.
#pragma once

#include "common.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

namespace tenon::cpu {

/// True where a weight gradient by this implementation of oneDNN writes past its scratch. Its strided 1x1
/// primitives gather the pixels that they need, `channels` numbers each, but begin each run of pixels as if
/// it had as many numbers as a vector holds: with fewer, the last runs end in the next thread's part, in the
/// barrier of its sum (which then waits for ever), or in whatever follows (docs/decisions/0036).
/// `channels_last`: the order in which x is read; blocks of channels are padded with zeros and are safe.
inline bool overruns_scratch(std::string_view implementation, std::int64_t channels, bool strided,
                             bool channels_last) {
  constexpr std::string_view kPoints = "jit_1x1:";
  if (!strided || !channels_last || implementation.substr(0, kPoints.size()) != kPoints) return false;
  const std::int64_t lanes = implementation.find("avx512") == std::string_view::npos ? 8 : 16;
  return channels < lanes;
}

/// The products of a convolution.
enum ConvolutionProduct : int { kConvolutionForward, kConvolutionInput, kConvolutionWeight };
inline constexpr int kConvolutionProducts = 3;

/// True where the kernels of this tree compute the product faster than oneDNN, by a model of their costs.
bool kernels_are_faster(const ConvolutionSpec& spec, int product, bool avx512);

/// oneDNN's, in f32. Null where the library would make windows itself, or has only its plain loops. Must not
/// be run inside parallel_for: oneDNN would silently use one thread there.
std::unique_ptr<Convolution> make_onednn_convolution(const Kernels& kernels, const ConvolutionSpec& spec);

/// This tree's, in f32 and two dimensions, with strides of at most 2. Null where the kernel set has none, or
/// for other convolutions.
std::unique_ptr<Convolution> make_kernel_convolution(const Kernels& kernels, const ConvolutionSpec& spec);

}  // namespace tenon::cpu
