// Preparation of a Fourier transform (fft.cpp): the check of its spec, and its waves, computed on the host in
// double.
#pragma once

#include <tenon/ops/spectral.hpp>

#include <vector>

namespace tenon::cuda {

/// Throws for lines and modes that do not exist, and for points of other types than the contract's.
void check_fft(const FftSpec& spec);

/// cos and sin of 2 pi n / length for every n.
std::vector<double> fft_waves(std::int64_t length);

}  // namespace tenon::cuda
