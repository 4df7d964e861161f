// Bits of sign.hpp, worked out on the host, whatever the device. A sum of magnitudes is taken over blocks of
// fixed size, so that it does not depend on the number of threads.
#include "sign.hpp"

#include <tenon/parallel.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tenon::sync_compress {
namespace {

constexpr std::int64_t kBlock = 8192;  ///< a multiple of 8: no two blocks share a byte

std::int64_t blocks(std::int64_t elements) {
  return (elements + kBlock - 1) / kBlock;
}

/// body(first, last, block)
template <typename Body>
void for_blocks(std::int64_t elements, Body body) {
  parallel_for(blocks(elements), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block)
      body(block * kBlock, std::min(elements, (block + 1) * kBlock), block);
  });
}

template <typename Body>
void with_real(DType dtype, Body body) {
  if (dtype == DType::kF64)
    body(double{});
  else
    body(float{});
}

}  // namespace

void Sign::prepare_part(std::size_t index) {
  const Part& part = parts()[index];
  Bits bits;
  auto row = static_cast<std::int64_t>(part.pieces.size() * sizeof(float));
  for (const Piece& piece : part.pieces) {
    bits.at.push_back(row);
    row += (piece.elements + 7) / 8;
    sums_.resize(std::max(sums_.size(), static_cast<std::size_t>(blocks(piece.elements))));
  }
  bits.rows = allocate(DType::kU8, row * members());
  bits.rows.shape = Shape{members(), row};
  bits_.push_back(std::move(bits));
}

void Sign::begin(std::size_t index) {
  const Part& part = parts()[index];
  Bits& bits = bits_[index];
  if (feeds_back()) elementwise().fill(part.pending, 0);
  const TensorView data = data_.read(device(), part.data), rows = rows_.read(device(), bits.rows),
                   pending = feeds_back() ? lost_.read(device(), part.pending) : TensorView{};
  auto* row = rows.as<std::uint8_t>() + group().rank() * rows.shape[1];
  with_real(part.data.dtype, [&](auto tag) {
    using Real = decltype(tag);
    for (std::size_t i = 0; i < part.pieces.size(); ++i) {
      const Piece& piece = part.pieces[i];
      const Real* x = data.as<Real>() + piece.begin;
      for_blocks(piece.elements, [&](std::int64_t first, std::int64_t last, std::int64_t block) {
        double sum = 0;
        for (std::int64_t j = first; j < last; ++j) sum += std::abs(static_cast<double>(x[j]));
        sums_[static_cast<std::size_t>(block)] = sum;
      });
      double sum = 0;
      for (std::int64_t block = 0; block < blocks(piece.elements); ++block)
        sum += sums_[static_cast<std::size_t>(block)];
      const auto scale = static_cast<float>(sum / static_cast<double>(piece.elements));
      std::memcpy(row + i * sizeof(float), &scale, sizeof(float));
      std::uint8_t* out = row + bits.at[i];
      Real* lost = feeds_back() ? pending.as<Real>() + piece.begin : nullptr;
      for_blocks(piece.elements, [&](std::int64_t first, std::int64_t last, std::int64_t) {
        for (std::int64_t j = first; j < last; ++j) {
          const bool negative = x[j] < 0;
          const auto bit = static_cast<std::uint8_t>((negative ? 1U : 0U) << (j % 8));
          out[j / 8] = static_cast<std::uint8_t>(j % 8 == 0 ? bit : out[j / 8] | bit);
          if (lost != nullptr) lost[j] = x[j] - static_cast<Real>(negative ? -scale : scale);
        }
      });
    }
  });
  if (feeds_back()) lost_.write(device(), part.pending);
  rows_.write(device(), bits.rows);
  bits.request = group().start_all_gather(bits.rows);
}

void Sign::end(std::span<const std::size_t> indices) {
  for (const std::size_t index : indices) {
    Part& part = parts()[index];
    Bits& bits = bits_[index];
    group().wait(bits.request);
    const TensorView data = data_.read(device(), part.data), rows = rows_.read(device(), bits.rows);
    with_real(part.data.dtype, [&](auto tag) {
      using Real = decltype(tag);
      for (std::size_t i = 0; i < part.pieces.size(); ++i) {
        const Piece& piece = part.pieces[i];
        Real* mean = data.as<Real>() + piece.begin;
        for_blocks(piece.elements, [&](std::int64_t first, std::int64_t last, std::int64_t) {
          for (int k = 0; k < members(); ++k) {
            const auto* row = rows.as<std::uint8_t>() + k * rows.shape[1];
            float scale = 0;
            std::memcpy(&scale, row + i * sizeof(float), sizeof(float));
            const std::uint8_t* in = row + bits.at[i];
            for (std::int64_t j = first; j < last; ++j) {
              const auto value = static_cast<Real>((in[j / 8] >> (j % 8) & 1) != 0 ? -scale : scale);
              mean[j] = k == 0 ? value : mean[j] + value;
            }
          }
          for (std::int64_t j = first; j < last; ++j) mean[j] *= static_cast<Real>(1.0 / members());
        });
      }
    });
    data_.write(device(), part.data);
  }
}

}  // namespace tenon::sync_compress
