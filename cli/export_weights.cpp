// bf16 is the upper half of f32. A double is converted directly: through f32 it would be rounded twice.
// Tensors that are joined along dimension 0 are their elements one after another, so a rule that does not
// transpose is a matter of rows.
#include "export_weights.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

namespace tenon::cli {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t index) {
  T element;
  std::memcpy(&element, bytes.data() + index * sizeof(T), sizeof(T));
  return element;
}

double from_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  const double size = exponent == 0    ? std::ldexp(fraction, -24)
                      : exponent == 31 ? (fraction == 0 ? HUGE_VAL : std::nan(""))
                                       : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000u) != 0 ? -size : size;
}

std::uint16_t to_bf16(double value) {
  auto nearest = static_cast<float>(value);
  if (std::isnan(nearest)) return 0x7fc0;
  if (std::isinf(nearest)) {
    if (std::isinf(value)) return std::signbit(value) ? 0xff80 : 0x7f80;
    nearest = std::copysign(std::numeric_limits<float>::max(), nearest);
  }
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  // A float on a tie of bf16 may be the result of rounding: one bit to the side it came from.
  if ((bits & 0xffffu) == 0x8000u && static_cast<double>(nearest) != value) {
    bits += std::abs(value) > std::abs(static_cast<double>(nearest)) ? 1u : -1u;
  }
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

double element(DType from, std::span<const std::byte> bytes, std::size_t index) {
  switch (from) {
    case DType::kF64:
      return load<double>(bytes, index);
    case DType::kF32:
      return load<float>(bytes, index);
    case DType::kBF16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(bytes, index)) << 16);
    default:
      return from_f16(load<std::uint16_t>(bytes, index));
  }
}

bool convertible(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

std::vector<std::byte> convert_elements(DType from, std::span<const std::byte> bytes, double factor,
                                        DType to) {
  const auto count = bytes.size() / static_cast<std::size_t>(dtype_bytes(from, 1));
  std::vector<std::byte> out(count * static_cast<std::size_t>(dtype_bytes(to, 1)));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = element(from, bytes, i) * factor;
    if (to == DType::kBF16) {
      const std::uint16_t rounded = to_bf16(value);
      std::memcpy(out.data() + 2 * i, &rounded, 2);
    } else if (to == DType::kF64) {
      std::memcpy(out.data() + 8 * i, &value, 8);
    } else {
      const auto rounded = static_cast<float>(value);
      std::memcpy(out.data() + 4 * i, &rounded, 4);
    }
  }
  return out;
}

namespace {

constexpr std::size_t kMostPiece = std::size_t{4} << 20;

/// Rows along the dimension that rules join; `across`: the tensor is transposed.
std::int64_t rows_along(const Shape& shape, bool across) {
  if (shape.rank() == 0) return 1;
  return across ? shape[1] : shape[0];
}

Shape with_rows(Shape shape, std::int64_t rows, bool across) {
  if (shape.rank() > 0) shape[0] = rows;
  if (across) std::swap(shape[0], shape[1]);
  return shape;
}

/// Columns become rows.
std::vector<std::byte> turned(std::span<const std::byte> bytes, std::int64_t rows, std::int64_t columns,
                              DType dtype) {
  const auto size = static_cast<std::size_t>(dtype_bytes(dtype, 1));
  std::vector<std::byte> out(bytes.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      std::memcpy(out.data() + (c * rows + r) * size, bytes.data() + (r * columns + c) * size, size);
  return out;
}

std::string rule_text(const NameRule& rule) {
  return fmt::format("the rule for '{}'", rule.here.empty() ? std::string() : rule.here.front());
}

bool covers_once(std::vector<RowRange> blocks, std::int64_t rows) {
  std::ranges::sort(blocks, {}, &RowRange::first);
  std::int64_t next = 0;
  for (const RowRange& block : blocks) {
    if (block.first != next || block.count < 1 || block.count > rows - next) return false;
    next += block.count;
  }
  return next == rows;
}

NameGroup group_of(const NameRule& rule, std::span<const StoredTensor> parameters, const std::string& owner) {
  NameGroup group{{}, {}, rule.factor, rule.transposed, rule.blocks};
  std::int64_t rows = 0;
  for (const std::string& name : rule.here) {
    const auto found = std::ranges::lower_bound(parameters, name, {}, &StoredTensor::name);
    if (found == parameters.end() || found->name != name)
      fail_config(fmt::format("the model has a name for '{}' in other programs, and {} does not hold it",
                              name, owner));
    group.here.push_back(*found);
    rows += rows_along(found->shape, false);
  }
  const auto wrong = [&](const std::string& what) {
    fail_plugin(fmt::format("{} {}", rule_text(rule), what));
  };
  if (rule.here.empty() || rule.there.empty()) wrong("has a side without a name");
  if (rule.here.size() > 1 && rule.there.size() > 1) wrong("has several names on both sides");
  if (rule.rows.size() != (rule.there.size() > 1 ? rule.there.size() : 0))
    wrong("needs the rows of each of several tensors there, and of no single one");
  if (rule.factor == 0 || !std::isfinite(rule.factor)) wrong("has a factor that cannot be undone");
  const StoredTensor& first = group.here.front();
  for (const StoredTensor& tensor : group.here) {
    if (tensor.dtype != first.dtype || (group.here.size() > 1 && tensor.shape.rank() == 0) ||
        !(with_rows(tensor.shape, rows, false) == with_rows(first.shape, rows, false)))
      wrong("joins tensors that differ in type or in extents but the first");
  }
  if (rule.transposed && first.shape.rank() != 2) wrong("transposes what is no matrix");
  std::int64_t left = rows;
  for (std::size_t i = 0; i < rule.there.size(); ++i) {
    const std::int64_t own = rule.rows.empty() ? rows : rule.rows[i];
    left -= own;
    group.there.push_back({rule.there[i], first.dtype, with_rows(first.shape, own, rule.transposed)});
  }
  if (left != 0) wrong("splits other rows than there are");
  if (!rule.blocks.empty() && !covers_once(rule.blocks, rows)) {
    wrong(
        fmt::format("orders other rows than the {} that there are, or some of them twice; expected each of "
                    "them in one of 'blocks'",
                    rows));
  }
  return group;
}

}  // namespace

std::vector<NameGroup> name_groups(const NamePlan& plan, std::span<const StoredTensor> parameters,
                                   const std::string& owner) {
  std::vector<NameGroup> groups;
  std::set<std::string_view> ruled, there;
  for (const NameRule& rule : plan.rules) {
    groups.push_back(group_of(rule, parameters, owner));
    for (const std::string& name : rule.here)
      if (!ruled.insert(name).second) fail_plugin(fmt::format("two rules are for the parameter '{}'", name));
  }
  for (const StoredTensor& tensor : parameters)
    if (!ruled.contains(tensor.name)) groups.push_back({{tensor}, {tensor}, 1, false});
  for (const NameGroup& group : groups)
    for (const StoredTensor& tensor : group.there)
      if (!there.insert(tensor.name).second)
        fail_plugin(fmt::format("two parameters would be '{}' in other programs", tensor.name));
  return groups;
}

bool is_derived(const NamePlan& plan, std::string_view name) {
  // Greedy: the latest star takes one character more whenever what follows it does not fit.
  const auto fits = [name](std::string_view pattern) {
    std::size_t p = 0, n = 0, star = pattern.size(), taken = 0;
    while (n < name.size()) {
      if (p < pattern.size() && pattern[p] == '*') {
        star = p++;
        taken = n;
      } else if (p < pattern.size() && pattern[p] == name[n]) {
        ++p, ++n;
      } else if (star < pattern.size()) {
        p = star + 1;
        n = ++taken;
      } else {
        return false;
      }
    }
    return pattern.find_first_not_of('*', p) == std::string_view::npos;
  };
  return std::ranges::any_of(plan.derived, fits);
}

DType exported_type(const NameGroup& group, std::optional<DType> asked) {
  const DType own = group.here.front().dtype;
  if (convertible(own)) return asked ? *asked : own == DType::kF16 && group.factor != 1 ? DType::kF32 : own;
  if (group.factor != 1)
    fail_config(
        fmt::format("weight '{}' is {} and cannot be scaled", group.here.front().name, dtype_name(own)));
  return own;
}

namespace {

/// Ranges of the joined source rows, in the order of the targets' rows.
std::vector<RowRange> source_order(const NameGroup& group, Direction direction) {
  if (group.blocks.empty() || direction == Direction::kExport) return group.blocks;
  std::vector<RowRange> by_target;  // first: where the block stands there
  std::vector<std::size_t> order(group.blocks.size());
  std::int64_t next = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    by_target.push_back({next, group.blocks[i].count});
    next += group.blocks[i].count;
  }
  std::ranges::sort(order, {}, [&](std::size_t i) { return group.blocks[i].first; });
  std::vector<RowRange> result;
  for (const std::size_t i : order) result.push_back(by_target[i]);
  return result;
}

/// Gives rows of the joined source tensors, converted, piece by piece.
class SourceRows {
 public:
  SourceRows(std::span<const StoredTensor> sources, bool across, std::int64_t columns, DType to,
             double factor, const ReadRows& read, std::function<void(std::span<std::byte>)> give)
      : sources_(sources),
        across_(across),
        columns_(columns),
        to_(to),
        factor_(factor),
        read_(read),
        give_(std::move(give)) {}

  /// Rows [begin, end) of all sources one after another.
  void copy(std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;  // row at which the source begins
    for (const StoredTensor& source : sources_) {
      const std::int64_t own = rows_along(source.shape, across_);
      const std::int64_t low = std::max(begin, first), high = std::min(end, first + own);
      if (low < high) {
        if (across_)
          copy_turned(source, low - first, high - low);
        else
          copy_rows(source, low - first, high - low);
      }
      first += own;
    }
  }

 private:
  std::vector<std::byte> converted(DType from, std::vector<std::byte> bytes) const {
    return from == to_ && factor_ == 1 ? std::move(bytes) : convert_elements(from, bytes, factor_, to_);
  }
  void copy_turned(const StoredTensor& source, std::int64_t from, std::int64_t rows) {
    if (turned_of_ != &source) {
      turned_.resize(static_cast<std::size_t>(dtype_bytes(source.dtype, source.shape.elements())));
      read_(source, 0, source.shape[0], turned_);
      turned_ = converted(source.dtype, turned(turned_, source.shape[0], source.shape[1], source.dtype));
      turned_of_ = &source;
    }
    const auto size = static_cast<std::size_t>(dtype_bytes(to_, columns_));
    give_(std::span(turned_).subspan(size * from, size * rows));
  }
  void copy_rows(const StoredTensor& source, std::int64_t from, std::int64_t rows) {
    const auto row_bytes = static_cast<std::size_t>(dtype_bytes(source.dtype, columns_));
    const std::int64_t step = std::max<std::int64_t>(1, kMostPiece / row_bytes);
    for (std::int64_t row = 0; row < rows; row += step) {
      const std::int64_t count = std::min(step, rows - row);
      std::vector<std::byte> bytes(row_bytes * count);
      read_(source, from + row, count, bytes);
      bytes = converted(source.dtype, std::move(bytes));
      give_(bytes);
    }
  }

  std::span<const StoredTensor> sources_;
  bool across_;  ///< the sources are transposed
  std::int64_t columns_;
  DType to_;
  double factor_;
  const ReadRows& read_;
  std::function<void(std::span<std::byte>)> give_;
  const StoredTensor* turned_of_ = nullptr;
  std::vector<std::byte> turned_;  ///< the source that was read last, as `to_`
};

}  // namespace

void translate(const NameGroup& group, Direction direction, std::size_t target, DType to,
               const ReadRows& read, const TakeElements& take) {
  const bool exports = direction == Direction::kExport;
  const std::vector<StoredTensor>&sources = exports ? group.here : group.there,
        &targets = exports ? group.there : group.here;
  const bool source_across = group.transposed && !exports, target_across = group.transposed && exports;
  const Shape& shape = targets[target].shape;
  if (shape.elements() == 0) return;
  std::vector<std::byte> whole;  // of a target that is transposed at the end
  const auto give = [&](std::span<std::byte> bytes) {
    if (target_across)
      whole.insert(whole.end(), bytes.begin(), bytes.end());
    else
      take({bytes.data(), {static_cast<std::int64_t>(bytes.size()) / dtype_bytes(to, 1)}, to});
  };
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < target; ++i) begin += rows_along(targets[i].shape, target_across);
  const std::int64_t rows = rows_along(shape, target_across), end = begin + rows;
  const std::int64_t columns = shape.elements() / rows;
  SourceRows source(sources, source_across, columns, to, exports ? group.factor : 1 / group.factor, read,
                    give);
  if (group.blocks.empty()) source.copy(begin, end);
  std::int64_t first = 0;  // row of the joined targets at which the block begins
  for (const RowRange& block : source_order(group, direction)) {
    const std::int64_t low = std::max(begin, first), high = std::min(end, first + block.count);
    if (low < high) source.copy(block.first + low - first, block.first + high - first);
    first += block.count;
  }
  if (!target_across) return;
  whole = turned(whole, rows, columns, to);
  take({whole.data(), {static_cast<std::int64_t>(whole.size()) / dtype_bytes(to, 1)}, to});
}

ReadRows rows_of(StoredModel& model) {
  return [&model](const StoredTensor& tensor, std::int64_t row, std::int64_t rows, std::span<std::byte> out) {
    Shape offset = tensor.shape, extent = tensor.shape;
    for (int dim = 0; dim < offset.rank(); ++dim) offset[dim] = 0;
    if (extent.rank() > 0) offset[0] = row, extent[0] = rows;
    model.read(tensor.name, offset, {out.data(), extent, tensor.dtype});
  };
}

}  // namespace tenon::cli
