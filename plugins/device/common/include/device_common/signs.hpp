// Arguments of signs (family SignOps) as pointers, after the checks that all devices of this tree make.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/signs.hpp>
#include <tenon/sdk/ops/signs.hpp>

#include <string>

namespace tenon::device_signs {

inline constexpr const char* kEncode = "encode signs";
inline constexpr const char* kDecode = "decode signs";

inline void check_place(const char* where, const SignPlace& place, std::int64_t elements, std::int64_t row) {
  const std::int64_t scale_end = place.scale + 4, bits_end = place.bits + kernels::sign_bytes(elements);
  if (place.scale >= 0 && place.bits >= 0 && scale_end <= row && bits_end <= row &&
      (scale_end <= place.bits || bits_end <= place.scale))
    return;
  device_arguments::refuse(where, "a row of " + std::to_string(row) +
                                      " bytes does not hold a scale at byte " + std::to_string(place.scale) +
                                      " and, apart from it, " + std::to_string(elements) + " bits at byte " +
                                      std::to_string(place.bits));
}

inline std::size_t encode_scratch(std::int64_t elements) {
  return kernels::sign_blocks(elements) * sizeof(double);
}

template <class A>
struct Encoding {
  Encoding(const TensorView& x_view, const TensorView& row, const SignPlace& place,
           const TensorView& lost_view, const TensorView& scratch)
      : n(x_view.elements()) {
    using device_arguments::checked;
    x = checked<A>(x_view, n, kEncode, "x");
    auto* const bytes = checked<std::uint8_t>(row, row.elements(), kEncode, "row");
    check_place(kEncode, place, n, row.elements());
    scale = bytes + place.scale, bits = bytes + place.bits;
    lost = device_arguments::checked_or_null<A>(lost_view, n, kEncode, "lost");
    device_arguments::check_scratch_as(scratch, encode_scratch(n), kEncode, "encode_scratch");
    sums = static_cast<double*>(scratch.data);
  }

  std::int64_t n;
  const A* x;
  std::uint8_t *scale, *bits;
  A* lost;
  double* sums;  ///< of blocks
};

template <class A>
struct Decoding {
  Decoding(const TensorView& rows_view, const SignPlace& place, const TensorView& mean_view)
      : n(mean_view.elements()) {
    using device_arguments::checked;
    mean = checked<A>(mean_view, n, kDecode, "mean");
    const auto* const bytes = checked<std::uint8_t>(rows_view, rows_view.elements(), kDecode, "rows");
    if (rows_view.shape.rank() != 2 || rows_view.shape[0] < 1) {
      device_arguments::refuse(
          kDecode, "rows must be [members, bytes] of at least one member, found " + rows_view.shape.text());
    }
    check_place(kDecode, place, n, rows_view.shape[1]);
    rows = {bytes + place.scale, bytes + place.bits, rows_view.shape[0], rows_view.shape[1]};
  }

  std::int64_t n;
  A* mean;
  kernels::SignRows rows;
};

}  // namespace tenon::device_signs
