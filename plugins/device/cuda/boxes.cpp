// Boxes of tensors (family StridedCopyOps). Copies move words of the elements' size, whatever the dtype;
// elements of two words count twice along the last dimension.
#include "common.hpp"

#include <tenon/kernels/cuda/boxes.hpp>
#include <tenon/ops/copy.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;
static_assert(bodies::kMostBoxDims >= kMaxRank);

[[noreturn]] void refuse_boxes(const char* where, const std::string& what) {
  fail_run(std::string("device ") + kDeviceName + ": " + where + ": " + what);
}

void check_box(const TensorView& view, const Box& box, const char* where) {
  bool fits = box.offset.rank() == view.shape.rank() && box.extents.rank() == view.shape.rank();
  for (int d = 0; fits && d < view.shape.rank(); ++d)
    fits = box.offset[d] >= 0 && box.extents[d] >= 0 && box.end(d) <= view.shape[d];
  if (!fits) {
    refuse_boxes(where, "the box of " + box.extents.text() + " at " + box.offset.text() +
                            " does not lie in the tensor " + view.shape.text());
  }
  if (view.space != MemorySpace::kCuda || (view.data == nullptr && view.elements() > 0))
    refuse_boxes(where, "the tensor " + view.shape.text() + " is not in this device's memory");
}

/// `words` per element.
bodies::BoxPair pair_of(const TensorView& from, const Box& source, const TensorView& to, const Box& target,
                        std::int64_t words) {
  struct Line {
    std::int64_t at[kMaxRank] = {};
    explicit Line(const Shape& shape) {
      for (int d = 0; d < shape.rank(); ++d) at[d] = shape[d];
    }
  };
  const int rank = source.extents.rank();
  Line lines[] = {Line(source.extents), Line(from.shape), Line(source.offset), Line(to.shape),
                  Line(target.offset)};
  // A tensor without dimensions is one element.
  const int dims = rank > 0 ? rank : 1;
  if (rank == 0) lines[0].at[0] = lines[1].at[0] = lines[3].at[0] = 1;
  for (Line& line : lines) line.at[dims - 1] *= words;
  return bodies::box_pair(dims, lines[0].at, lines[1].at, lines[2].at, lines[3].at, lines[4].at);
}

class CudaStridedCopyOps final : public StridedCopyOps {
 public:
  explicit CudaStridedCopyOps(Queue& queue) : queue_(queue) {}

  void copy(TensorView from, const Box& source, TensorView to, const Box& target) override {
    constexpr const char* kWhere = "copy of a box";
    check_pair(from, source, to, target, kWhere);
    if (source.elements() == 0) return;
    with_word(from.dtype, kWhere, [&]<class Word>(Word*, std::int64_t words) {
      const bodies::BoxPair pair = pair_of(from, source, to, target, words);
      queue_.launch(kWhere, grid_for(pair.elements),
                    bodies::CopyBox<Word>{pair, static_cast<const Word*>(from.data), to.as<Word>()});
    });
  }

  void add(TensorView from, const Box& source, TensorView to, const Box& target) override {
    constexpr const char* kWhere = "sum into a box";
    check_pair(from, source, to, target, kWhere);
    if (source.elements() == 0) return;
    const bool complex = dtype_is_complex(from.dtype);
    const DType reals = from.dtype == DType::kC64    ? DType::kF32
                        : from.dtype == DType::kC128 ? DType::kF64
                                                     : from.dtype;
    with_storage(reals, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const bodies::BoxPair pair = pair_of(from, source, to, target, complex ? 2 : 1);
      queue_.launch(kWhere, grid_for(pair.elements),
                    bodies::AddBox<S>{pair, static_cast<const S*>(from.data), to.as<S>()});
    });
  }

  void fill(TensorView x, const Box& box, double value) override {
    constexpr const char* kWhere = "fill of a box";
    check_box(x, box, kWhere);
    if (box.elements() == 0) return;
    const auto launch = [&]<class Word>(Word word, std::int64_t words) {
      const bodies::BoxPair pair = pair_of(x, box, x, box, words);
      queue_.launch(kWhere, grid_for(pair.elements), bodies::FillBox<Word>{pair, word, x.as<Word>()});
    };
    if (value == 0) {
      with_word(x.dtype, kWhere, [&]<class Word>(Word*, std::int64_t words) { launch(Word{0}, words); });
    } else {
      with_storage(x.dtype, kWhere, [&](auto tag) {
        using S = typename decltype(tag)::type;
        launch(bodies::put<S>(static_cast<Arith<S>>(value)), 1);
      });
    }
  }

 private:
  static void check_pair(const TensorView& from, const Box& source, const TensorView& to, const Box& target,
                         const char* where) {
    check_box(from, source, where);
    check_box(to, target, where);
    if (from.dtype != to.dtype || !(source.extents == target.extents)) {
      refuse_boxes(where, std::string(dtype_name(from.dtype)) + " " + source.extents.text() +
                              " does not go to " + std::string(dtype_name(to.dtype)) + " " +
                              target.extents.text() + ": dtypes and extents must be equal");
    }
  }

  /// Calls body(Word*, words per element).
  template <class Body>
  static void with_word(DType dtype, const char* where, Body&& body) {
    switch (dtype_bits(dtype)) {
      case 8:
        return body(static_cast<std::uint8_t*>(nullptr), std::int64_t{1});
      case 16:
        return body(static_cast<std::uint16_t*>(nullptr), std::int64_t{1});
      case 32:
        return body(static_cast<std::uint32_t*>(nullptr), std::int64_t{1});
      case 64:
        return body(static_cast<std::uint64_t*>(nullptr), std::int64_t{1});
      case 128:
        return body(static_cast<std::uint64_t*>(nullptr), std::int64_t{2});
      default:
        refuse_dtype(dtype, where);
    }
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<StridedCopyOps> make_strided_copy_ops(Queue& queue) {
  return std::make_unique<CudaStridedCopyOps>(queue);
}

}  // namespace tenon::cuda
