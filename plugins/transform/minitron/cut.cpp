// Rows of in_proj and of the convolution of a Mamba layer come group after group (z, x, B, C, dt and x, B,
// C), so the heads that stay are rows inside each group, and B and C stay whole.
#include "cut.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/stored_slices.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

namespace tenon::minitron {
namespace {

enum class CutAxis : std::uint8_t {
  kWhole,  ///< of no axis that is cut
  kWidth,
  kHidden,
  kQueries,
  kKeys,
  kInProj,
  kConv,
  kMambaHeads,
  kMambaChannels
};

/// Axes of the first two dimensions of a parameter, by the end of its name.
struct Owner {
  std::string_view name;
  CutAxis rows = CutAxis::kWhole, columns = CutAxis::kWhole;
};
constexpr Owner kOfModel[] = {
    {"model.embed_tokens.weight", CutAxis::kWhole, CutAxis::kWidth},
    {"model.embed_positions.weight", CutAxis::kWhole, CutAxis::kWidth},
    {"model.norm.weight", CutAxis::kWidth},
    {"model.norm.bias", CutAxis::kWidth},
    {"lm_head.weight", CutAxis::kWhole, CutAxis::kWidth},
};
constexpr Owner kOfLayer[] = {
    {"norm.weight", CutAxis::kWidth},
    {"norm.bias", CutAxis::kWidth},
    {"self_attn.q_proj.weight", CutAxis::kQueries, CutAxis::kWidth},
    {"self_attn.q_proj.bias", CutAxis::kQueries},
    {"self_attn.k_proj.weight", CutAxis::kKeys, CutAxis::kWidth},
    {"self_attn.k_proj.bias", CutAxis::kKeys},
    {"self_attn.v_proj.weight", CutAxis::kKeys, CutAxis::kWidth},
    {"self_attn.v_proj.bias", CutAxis::kKeys},
    {"self_attn.q_norm.weight", CutAxis::kWhole},
    {"self_attn.k_norm.weight", CutAxis::kWhole},
    {"self_attn.o_proj.weight", CutAxis::kWidth, CutAxis::kQueries},
    {"self_attn.o_proj.bias", CutAxis::kWidth},
    {"mlp.gate_proj.weight", CutAxis::kHidden, CutAxis::kWidth},
    {"mlp.gate_proj.bias", CutAxis::kHidden},
    {"mlp.up_proj.weight", CutAxis::kHidden, CutAxis::kWidth},
    {"mlp.up_proj.bias", CutAxis::kHidden},
    {"mlp.down_proj.weight", CutAxis::kWidth, CutAxis::kHidden},
    {"mlp.down_proj.bias", CutAxis::kWidth},
    {"mamba.in_proj.weight", CutAxis::kInProj, CutAxis::kWidth},
    {"mamba.conv1d.weight", CutAxis::kConv},
    {"mamba.conv1d.bias", CutAxis::kConv},
    {"mamba.dt_bias", CutAxis::kMambaHeads},
    {"mamba.A_log", CutAxis::kMambaHeads},
    {"mamba.D", CutAxis::kMambaHeads},
    {"mamba.norm.weight", CutAxis::kMambaChannels},
    {"mamba.out_proj.weight", CutAxis::kWidth, CutAxis::kMambaChannels},
};

using List = std::shared_ptr<const Indices>;

List shared(Indices indices) {
  return std::make_shared<const Indices>(std::move(indices));
}

/// Elements of the heads in this order.
Indices elements_of(const Indices& heads, std::int64_t head_width) {
  Indices elements;
  for (const std::int64_t head : heads)
    for (std::int64_t i = 0; i < head_width; ++i) elements.push_back(head < 0 ? -1 : head * head_width + i);
  return elements;
}

/// Channels of the Mamba heads that stay, over all heads.
Indices mamba_channels(const LayerShape& layer, const KeptLayer& kept) {
  Indices channels;
  for (const std::int64_t head : kept.mamba_heads)
    for (const std::int64_t i : kept.mamba_head_width) channels.push_back(head * layer.mamba_head_width + i);
  return channels;
}

/// Appends rows of parts of one group after the other: heads that stay as channels, whole parts, and heads.
class GroupedRows {
 public:
  GroupedRows(const LayerShape& layer, const KeptLayer& kept)
      : layer_(layer), kept_(kept), heads_(layer.mamba_heads / layer.mamba_groups) {}

  void channels(std::int64_t group) {
    for (const std::int64_t head : of(group))
      for (const std::int64_t i : kept_.mamba_head_width)
        rows_.push_back(at_ + head * layer_.mamba_head_width + i);
    at_ += heads_ * layer_.mamba_head_width;
  }
  void state() {
    for (std::int64_t i = 0; i < layer_.mamba_state; ++i) rows_.push_back(at_ + i);
    at_ += layer_.mamba_state;
  }
  void heads(std::int64_t group) {
    for (const std::int64_t head : of(group)) rows_.push_back(at_ + head);
    at_ += heads_;
  }
  Indices take() { return std::move(rows_); }

 private:
  /// Heads of the group that stay, counted within it.
  Indices of(std::int64_t group) const {
    Indices list;
    for (const std::int64_t head : kept_.mamba_heads)
      if (head / heads_ == group) list.push_back(head % heads_);
    return list;
  }

  const LayerShape& layer_;
  const KeptLayer& kept_;
  std::int64_t heads_, at_ = 0;
  Indices rows_;
};

Indices in_proj_rows(const LayerShape& layer, const KeptLayer& kept) {
  GroupedRows rows(layer, kept);
  for (std::int64_t group = 0; group < layer.mamba_groups; ++group) {
    rows.channels(group);  // z
    rows.channels(group);  // x
    rows.state();          // B
    rows.state();          // C
    rows.heads(group);     // dt
  }
  return rows.take();
}

Indices conv_rows(const LayerShape& layer, const KeptLayer& kept) {
  GroupedRows rows(layer, kept);
  for (std::int64_t group = 0; group < layer.mamba_groups; ++group) {
    rows.channels(group);
    rows.state();
    rows.state();
  }
  return rows.take();
}

/// The lists of one layer, by axis.
std::map<CutAxis, List> lists_of(const PlannedLayer& layer, const KeptLayer& kept) {
  const LayerShape& from = layer.from;
  std::map<CutAxis, List> lists;
  if (from.kind == LayerKind::kAttention) {
    lists[CutAxis::kQueries] = shared(elements_of(kept.heads, from.head_width));
    lists[CutAxis::kKeys] = shared(elements_of(kept.kv_heads, from.head_width));
  } else if (from.kind == LayerKind::kFfn) {
    lists[CutAxis::kHidden] = shared(kept.hidden);
  } else {
    lists[CutAxis::kInProj] = shared(in_proj_rows(from, kept));
    lists[CutAxis::kConv] = shared(conv_rows(from, kept));
    lists[CutAxis::kMambaHeads] = shared(kept.mamba_heads);
    lists[CutAxis::kMambaChannels] = shared(mamba_channels(from, kept));
  }
  return lists;
}

/// Extents that the axis had before the cut, to notice a model of another form.
std::int64_t extent_of(CutAxis axis, const DecoderShape& shape, const LayerShape& layer) {
  switch (axis) {
    case CutAxis::kWidth:
      return shape.width;
    case CutAxis::kHidden:
      return layer.hidden;
    case CutAxis::kQueries:
      return layer.heads * layer.head_width;
    case CutAxis::kKeys:
      return layer.kv_heads * layer.head_width;
    case CutAxis::kInProj:
      return layer.mamba_groups * layer.in_rows();
    case CutAxis::kConv:
      return layer.mamba_groups * layer.conv_rows();
    case CutAxis::kMambaHeads:
      return layer.mamba_heads;
    case CutAxis::kMambaChannels:
      return layer.mamba_heads * layer.mamba_head_width;
    case CutAxis::kWhole:
      break;
  }
  return -1;
}

const Owner* find_owner(std::span<const Owner> owners, std::string_view name) {
  const auto found = std::ranges::find(owners, name, &Owner::name);
  return found == owners.end() ? nullptr : &*found;
}

/// Number of the layer in "model.layers.3.norm.weight"; -1 for a name of no layer. `end`: after "3.".
std::int64_t layer_in(std::string_view name, std::size_t& end) {
  constexpr std::string_view kBegin = "model.layers.";
  if (!name.starts_with(kBegin)) return -1;
  end = name.find('.', kBegin.size());
  if (end == std::string_view::npos || end == kBegin.size() || end > kBegin.size() + 9) return -1;
  std::int64_t number = 0;
  for (std::size_t i = kBegin.size(); i < end; ++i) {
    if (name[i] < '0' || name[i] > '9') return -1;
    number = 10 * number + (name[i] - '0');
  }
  ++end;
  return number;
}

/// One element of a floating-point tensor: 2 a - b, rounded once.
template <typename T>
void add_residual(std::byte* to, const std::byte* gone, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) {
    T own = 0, other = 0;
    std::memcpy(&own, to + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    std::memcpy(&other, gone + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    own += own - other;
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), &own, sizeof(T));
  }
}

/// The source of one tensor as a matrix, whatever its rank, read from its first row to its last.
class Rows {
 public:
  Rows(StoredModel& source, const TensorCut& cut) : source_(source), cut_(cut), dtype_(cut.result.dtype) {
    const auto parameters = source.parameters();
    shape_ = std::ranges::find(parameters, cut.from, &StoredTensor::name)->shape;
    for (int dim = 1; dim < shape_.rank(); ++dim) columns_ *= shape_[dim];
    most_ = std::max<std::int64_t>(1, kSliceElements / std::max<std::int64_t>(1, columns_));
  }

  /// Reads the rows of the result from `begin` on that a slice of the source holds; returns the row after
  /// them.
  std::int64_t read_from(std::int64_t begin) {
    std::int64_t end = begin + 1;
    while (end < cut_.result.shape[0] && row_of(end) - row_of(begin) < most_) ++end;
    read(row_of(begin), row_of(end - 1) - row_of(begin) + 1, read_);
    return end;
  }
  /// Rows [begin, end) of the result, of those that read_from() has read.
  std::byte* selected(std::int64_t begin, std::int64_t end) {
    const std::int64_t element = dtype_bytes(dtype_, 1);
    const std::int64_t width = cut_.columns ? static_cast<std::int64_t>(cut_.columns->size()) : columns_;
    out_.resize((end - begin) * width * element);
    std::byte* to = out_.data();
    for (std::int64_t i = begin; i < end; ++i) {
      std::byte* const row = read_.data() + (row_of(i) - row_of(begin)) * columns_ * element;
      if (cut_.merged) merge((*cut_.merged)[i], row);
      if (!cut_.columns) {
        std::memcpy(to, row, static_cast<std::size_t>(columns_ * element));
        to += columns_ * element;
        continue;
      }
      for (const std::int64_t column : *cut_.columns) {
        std::memcpy(to, row + column * element, static_cast<std::size_t>(element));
        to += element;
      }
    }
    return out_.data();
  }

 private:
  std::int64_t row_of(std::int64_t i) const { return cut_.rows ? (*cut_.rows)[i] : i; }
  void read(std::int64_t first, std::int64_t count, std::vector<std::byte>& bytes) {
    Shape offset = shape_, extents = shape_;
    for (int dim = 0; dim < offset.rank(); ++dim) offset[dim] = 0;
    offset[0] = first;
    extents[0] = count;
    bytes.resize(dtype_bytes(dtype_, count * columns_));
    source_.read(cut_.from, offset, {bytes.data(), extents, dtype_, MemorySpace::kHost});
  }
  void merge(std::int64_t gone, std::byte* row) {
    if (gone < 0) return;
    read(gone, 1, gone_);
    if (dtype_ == DType::kF32)
      add_residual<float>(row, gone_.data(), columns_);
    else
      add_residual<double>(row, gone_.data(), columns_);
  }

  StoredModel& source_;
  const TensorCut& cut_;
  DType dtype_;
  Shape shape_;
  std::int64_t columns_ = 1, most_ = 1;
  std::vector<std::byte> read_, gone_, out_;
};

}  // namespace

Kept any_kept(const DecoderShape& shape, const Plan& plan) {
  const auto first = [](std::int64_t count) {
    Indices indices(static_cast<std::size_t>(count));
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  };
  Kept kept;
  kept.width = first(std::min(plan.width, shape.width));
  for (const PlannedLayer& layer : plan.layers) {
    KeptLayer& own = kept.layers.emplace_back();
    own.hidden = first(layer.to.hidden);
    own.kv_heads = first(layer.to.kv_heads);
    own.heads = first(layer.to.heads);
    own.merged.assign(own.heads.size(), -1);
    own.mamba_head_width = first(layer.to.mamba_head_width);
    const std::int64_t heads = layer.to.mamba_heads / layer.to.mamba_groups,
                       before = layer.from.mamba_heads / layer.from.mamba_groups;
    for (std::int64_t i = 0; i < layer.to.mamba_heads; ++i)
      own.mamba_heads.push_back(i / heads * before + i % heads);
  }
  return kept;
}

namespace {

/// Makes the cuts of all tensors from the lists of one model.
class CutList {
 public:
  CutList(const StoredModel& source, const DecoderShape& shape, const Plan& plan, const Kept& kept,
          bool merge)
      : source_(source), shape_(shape), kept_(kept), merge_(merge), width_(shared(kept.width)) {
    for (std::size_t i = 0; i < plan.layers.size(); ++i)
      layers_[plan.layers[i].from.number] = {&plan.layers[i], lists_of(plan.layers[i], kept.layers[i])};
  }

  void add(const StoredTensor& tensor) {
    std::size_t end = 0;
    const std::int64_t number = layer_in(tensor.name, end);
    const bool in_layer = number >= 0 && number < static_cast<std::int64_t>(shape_.layers.size());
    const std::string_view rest = std::string_view(tensor.name).substr(end);
    const Owner* owner = in_layer ? find_owner(kOfLayer, rest) : find_owner(kOfModel, tensor.name);
    if (owner == nullptr)
      fail_config(fmt::format(
          "transform minitron: {} has a parameter '{}', which is of no axis of a decoder that this "
          "version knows",
          source_.folder(), tensor.name));
    TensorCut cut{tensor.name, tensor.name, tensor, nullptr, nullptr, nullptr};
    if (!in_layer) {
      finish(std::move(cut), *owner, {}, {});
      return;
    }
    const auto found = layers_.find(number);
    if (found == layers_.end()) return;  // the layer goes
    const PlannedLayer& layer = *found->second.first;
    cut.to = layer.to.prefix() + std::string(rest);
    const KeptLayer& own = kept_.layers[layer.to.number];
    const bool merges = std::ranges::any_of(own.merged, [](std::int64_t head) { return head >= 0; });
    if (merge_ && merges && rest.starts_with("self_attn.q_proj."))
      cut.merged = shared(elements_of(own.merged, layer.from.head_width));
    finish(std::move(cut), *owner, layer.from, found->second.second);
  }
  std::vector<TensorCut> take() {
    std::ranges::sort(cuts_, {}, &TensorCut::to);
    return std::move(cuts_);
  }

 private:
  void finish(TensorCut cut, const Owner& owner, const LayerShape& layer,
              const std::map<CutAxis, List>& lists) {
    const StoredTensor tensor = cut.result;
    cut.result.name = cut.to;
    const CutAxis axes[] = {owner.rows, owner.columns};
    List* const targets[] = {&cut.rows, &cut.columns};
    for (int dim = 0; dim < 2; ++dim) {
      if (axes[dim] == CutAxis::kWhole) continue;
      const std::int64_t expected = extent_of(axes[dim], shape_, layer);
      const std::int64_t found = dim < tensor.shape.rank() ? tensor.shape[dim] : 0;
      if (found != expected)
        fail_config(
            fmt::format("transform minitron: parameter '{}' of {} has shape {}; expected {} in dimension {}",
                        tensor.name, source_.folder(), tensor.shape.text(), expected, dim));
      const List list = axes[dim] == CutAxis::kWidth ? width_ : lists.at(axes[dim]);
      cut.result.shape[dim] = static_cast<std::int64_t>(list->size());
      if (cut.result.shape[dim] < found) *targets[dim] = list;
    }
    cuts_.push_back(std::move(cut));
  }

  const StoredModel& source_;
  const DecoderShape& shape_;
  const Kept& kept_;
  bool merge_;
  List width_;
  std::map<std::int64_t, std::pair<const PlannedLayer*, std::map<CutAxis, List>>> layers_;
  std::vector<TensorCut> cuts_;
};

}  // namespace

std::vector<TensorCut> cuts_of(const StoredModel& source, const DecoderShape& shape, const Plan& plan,
                               const Kept& kept, bool merge) {
  CutList list(source, shape, plan, kept, merge);
  for (const StoredTensor& tensor : source.parameters()) list.add(tensor);
  return list.take();
}

void read_cut(StoredModel& source, const TensorCut& cut, const std::function<void(TensorView)>& use) {
  if (cut.merged && cut.result.dtype != DType::kF32 && cut.result.dtype != DType::kF64)
    fail_config(
        fmt::format("transform minitron: merge_heads needs weights in f32 or f64, and '{}' is {}; use the "
                    "transform cast before",
                    cut.from, dtype_name(cut.result.dtype)));
  Rows rows(source, cut);
  for (std::int64_t begin = 0; begin < cut.result.shape[0];) {
    const std::int64_t end = rows.read_from(begin);
    Shape shape = cut.result.shape;
    shape[0] = end - begin;
    use({rows.selected(begin, end), shape, cut.result.dtype, MemorySpace::kHost});
    begin = end;
  }
}

}  // namespace tenon::minitron
