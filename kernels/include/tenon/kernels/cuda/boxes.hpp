// Kernel bodies that copy, add and fill boxes of row-major tensors. Consecutive threads process consecutive
// elements along the box's last dimension, so accesses are as contiguous as the box.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

inline constexpr int kMostBoxDims = 8;

/// The elements of two boxes of equal extents, each in a tensor of its own: the places of the first ones, and
/// the distance of neighbours along each dimension. The last dimension is the fastest.
struct BoxPair {
  std::int64_t elements = 1;
  int dims = 0;
  std::int64_t extents[kMostBoxDims] = {};
  std::int64_t from_first = 0, to_first = 0;
  std::int64_t from_stride[kMostBoxDims] = {}, to_stride[kMostBoxDims] = {};
};

struct BoxPlace {
  std::int64_t from, to;
};

/// Boxes [offset, offset + extents) of tensors of these shapes, of at most kMostBoxDims dimensions.
/// Dimensions that are contiguous in both tensors are merged, and those of one index dropped: every remaining
/// one costs a division per element.
inline BoxPair box_pair(int rank, const std::int64_t* extents, const std::int64_t* from_shape,
                        const std::int64_t* from_offset, const std::int64_t* to_shape,
                        const std::int64_t* to_offset) {
  BoxPair pair;
  // From the last dimension to the first, and reversed at the end.
  std::int64_t from_stride = 1, to_stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    pair.elements *= extents[d];
    pair.from_first += from_offset[d] * from_stride;
    pair.to_first += to_offset[d] * to_stride;
    const int last = pair.dims - 1;
    if (extents[d] != 1) {
      if (pair.dims > 0 && from_stride == pair.extents[last] * pair.from_stride[last] &&
          to_stride == pair.extents[last] * pair.to_stride[last]) {
        pair.extents[last] *= extents[d];
      } else {
        pair.extents[pair.dims] = extents[d];
        pair.from_stride[pair.dims] = from_stride;
        pair.to_stride[pair.dims] = to_stride;
        ++pair.dims;
      }
    }
    from_stride *= from_shape[d];
    to_stride *= to_shape[d];
  }
  const auto turn = [&](std::int64_t* values) {
    for (int a = 0, b = pair.dims - 1; a < b; ++a, --b) {
      const std::int64_t kept = values[a];
      values[a] = values[b];
      values[b] = kept;
    }
  };
  turn(pair.extents), turn(pair.from_stride), turn(pair.to_stride);
  return pair;
}

/// Places of element `i` of the boxes, row-major, in both tensors.
TENON_BOTH inline BoxPlace place_in_boxes(const BoxPair& pair, std::int64_t i) {
  BoxPlace place{pair.from_first, pair.to_first};
  for (int d = pair.dims - 1; d > 0; --d) {
    const Divided index = divided(i, pair.extents[d]);
    place.from += index.remainder * pair.from_stride[d];
    place.to += index.remainder * pair.to_stride[d];
    i = index.quotient;
  }
  if (pair.dims > 0) {
    place.from += i * pair.from_stride[0];
    place.to += i * pair.to_stride[0];
  }
  return place;
}

/// The box of `to` = that of `from`; Word is an unsigned integer of the elements' size.
template <class Word>
struct CopyBox {
  BoxPair pair;
  const Word* from;
  Word* to;

  TENON_BOTH void operator()(const Block& block) const {
    const CopyBox& a = *this;
    for_each_element(block, a.pair.elements, [&](std::int64_t i) {
      const BoxPlace place = place_in_boxes(a.pair, i);
      a.to[place.to] = a.from[place.from];
    });
  }
};

/// The box of `to` += that of `from`, rounded once.
template <class S>
struct AddBox {
  BoxPair pair;
  const S* from;
  S* to;

  TENON_BOTH void operator()(const Block& block) const {
    const AddBox& a = *this;
    for_each_element(block, a.pair.elements, [&](std::int64_t i) {
      const BoxPlace place = place_in_boxes(a.pair, i);
      a.to[place.to] = put<S>(get(a.to[place.to]) + get(a.from[place.from]));
    });
  }
};

/// `value` in every element of the box of `to`.
template <class Word>
struct FillBox {
  BoxPair pair;
  Word value;
  Word* to;

  TENON_BOTH void operator()(const Block& block) const {
    const FillBox& a = *this;
    for_each_element(block, a.pair.elements,
                     [&](std::int64_t i) { a.to[place_in_boxes(a.pair, i).to] = a.value; });
  }
};

}  // namespace tenon::kernels::cuda
