// Layout of parameters in arenas, the arithmetic of shards, sets of parameters in device memory, and rows of
// tables in host memory.
#include "graph/parameter_set.hpp"

#include "base/at.hpp"
#include "graph/memory_budget.hpp"

#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/parallel.hpp>
#include <tenon/random.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

TENON_ABI_BEGIN

bool is_sharded(const ParameterSpec& spec, int axis) noexcept {
  return std::any_of(spec.sharding.begin(), spec.sharding.end(), [axis](const DimSharding& sharding) {
    return std::find(sharding.axes.begin(), sharding.axes.end(), axis) != sharding.axes.end();
  });
}

Box local_part(const ParameterSpec& spec, const MeshPlace& place) {
  if (is_sharded(spec, kReplicaAxis) && spec.role != Role::kRowTable)
    fail_config(
        fmt::format("parameter '{}' is sharded over the replicas; only row tables can be", spec.name));
  for (const DimSharding& sharding : spec.sharding) {
    const auto parts = static_cast<int>(sharding.offsets.size()) - 1;
    if (sharding.axes == std::vector{kReplicaAxis} && place.replica >= parts) {
      fail_config(fmt::format(
          "parameter '{}': dimension {} has {} shards over the replicas, but there is a replica {}",
          spec.name, sharding.dim, parts, place.replica));
    }
  }
  const Layout layout{spec.shape, spec.sharding};
  check_layout(layout, place.extents, fmt::format("parameter '{}'", spec.name));
  return part_of(layout, place);
}

TENON_ABI_END

namespace tenon::graph {

ArenaUse arena_use(const ParameterSpec& spec) {
  if (spec.role == Role::kBuffer) return ArenaUse::kBuffer;
  return spec.trainable ? ArenaUse::kTrained : ArenaUse::kFrozen;
}

std::vector<ParameterInfo> lay_out(const std::vector<Declared>& declared, const MeshPlace& place) {
  std::vector<std::size_t> order(declared.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return declared[a].finish_order < declared[b].finish_order;
  });

  // Trainable arenas first, so that gradient arenas are a prefix.
  using Key = std::tuple<ArenaUse, DType>;
  std::map<Key, int> arenas;
  for (const ArenaUse use : {ArenaUse::kTrained, ArenaUse::kFrozen, ArenaUse::kBuffer}) {
    for (std::size_t index : order) {
      const ParameterSpec& spec = declared[index].spec;
      if (spec.role == Role::kRowTable || arena_use(spec) != use) continue;
      arenas.try_emplace(Key{use, spec.dtype}, static_cast<int>(arenas.size()));
    }
  }

  std::vector<ParameterInfo> result;
  std::vector<std::int64_t> used(arenas.size(), 0);
  for (std::size_t index : order) {
    ParameterInfo info;
    info.spec = declared[index].spec;
    info.index = static_cast<int>(result.size());
    const Box part = local_part(info.spec, place);
    info.local = part.extents;
    info.offset = part.offset;
    info.users = declared[index].users;
    if (info.spec.role != Role::kRowTable) {
      info.arena = arenas.at(Key{arena_use(info.spec), info.spec.dtype});
      std::int64_t& end = used[info.arena];
      const std::int64_t step = std::max<std::int64_t>(1, 64 * 8 / dtype_bits(info.spec.dtype));
      info.begin = (end + step - 1) / step * step;
      end = info.begin + info.local.elements();
    }
    result.push_back(std::move(info));
  }
  return result;
}

std::int64_t arena_elements(const std::vector<ParameterInfo>& parameters, int arena) {
  std::int64_t end = 0;
  std::int64_t step = 1;
  for (const ParameterInfo& info : parameters) {
    if (info.arena != arena) continue;
    end = std::max(end, info.begin + info.local.elements());
    step = std::max<std::int64_t>(1, 64 * 8 / dtype_bits(info.spec.dtype));
  }
  return (end + step - 1) / step * step;
}

DType arena_dtype(const std::vector<ParameterInfo>& parameters, int arena) {
  for (const ParameterInfo& info : parameters) {
    if (info.arena == arena) return info.spec.dtype;
  }
  return DType::kF32;
}

ArenaUse arena_use(const std::vector<ParameterInfo>& parameters, int arena) {
  for (const ParameterInfo& info : parameters) {
    if (info.arena == arena) return arena_use(info.spec);
  }
  return ArenaUse::kFrozen;
}

int arena_count(const std::vector<ParameterInfo>& parameters) {
  int count = 0;
  for (const ParameterInfo& info : parameters) count = std::max(count, info.arena + 1);
  return count;
}

}  // namespace tenon::graph

TENON_ABI_BEGIN

// ParameterSet in device memory, one block per arena, and the declared initial values.

namespace {

class DeviceParameterSet final : public ParameterSet {
 public:
  DeviceParameterSet(std::string name, const std::vector<ParameterInfo>& parameters, Device& device,
                     SetContents contents, ParameterSet* tables_of)
      : name_(std::move(name)),
        parameters_(parameters),
        device_(device),
        tables_of_(tables_of),
        versions_(parameters.size()) {
    for (int arena = 0; arena < graph::arena_count(parameters_); ++arena) {
      TensorView view;
      const graph::ArenaUse use = graph::arena_use(parameters_, arena);
      const bool wanted = contents == SetContents::kGradients ? use == graph::ArenaUse::kTrained
                          : contents == SetContents::kBuffers ? use == graph::ArenaUse::kBuffer
                                                              : true;
      view.shape = Shape{wanted ? graph::arena_elements(parameters_, arena) : 0};
      view.dtype = graph::arena_dtype(parameters_, arena);
      view.space = device.space();
      if (view.bytes() > 0) {
        view.data =
            graph::allocate_for(device, static_cast<std::size_t>(view.bytes()),
                                fmt::format("'{}': {} and what lies beside it", name_, first_of(arena)));
      }
      arenas_.push_back(view);
    }
    for (const ParameterInfo& info : parameters_) {
      std::unique_ptr<RowTable> table;
      if (info.spec.role == Role::kRowTable && contents == SetContents::kEverything) {
        table = graph::make_row_table(info.spec.name, info.spec.dtype, info.spec.shape[0], info.spec.shape[1],
                                      info.offset[0], info.offset[0] + info.local[0]);
      }
      tables_.push_back(std::move(table));
    }
  }

  ~DeviceParameterSet() override {
    for (const TensorView& arena : arenas_) {
      if (arena.data != nullptr) device_.release(arena.data, arena.bytes());
    }
  }

  std::string_view name() const override { return name_; }
  std::span<const ParameterInfo> parameters() const override { return parameters_; }
  int arenas() const override { return static_cast<int>(arenas_.size()); }
  TensorView arena(int index) const override { return base::at(arenas_, index); }

  TensorView tensor(int parameter) const override {
    const ParameterInfo& info = base::at(parameters_, parameter);
    if (info.arena < 0) return {};
    TensorView view = base::at(arenas_, info.arena);
    if (view.data == nullptr) return {};
    view.data = static_cast<std::byte*>(view.data) + dtype_bytes(info.spec.dtype, info.begin);
    view.shape = info.local;
    return view;
  }

  RowTable* table(int parameter) const override {
    if (tables_of_ != nullptr) return tables_of_->table(parameter);
    return base::at(tables_, parameter).get();
  }

  // Relaxed: a version is read by the thread that ran after the writer, or under Hogwild by any thread, where
  // an old copy of a weight is as good as the weight itself.
  std::uint64_t version(int parameter) const override {
    return base::at(versions_, parameter).load(std::memory_order_relaxed) +
           all_.load(std::memory_order_relaxed);
  }
  void touch(int parameter) override {
    if (parameter < 0) {
      all_.fetch_add(1, std::memory_order_relaxed);
    } else {
      base::at(versions_, parameter).fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  std::string first_of(int arena) const {
    for (const ParameterInfo& info : parameters_) {
      if (info.arena == arena) return info.spec.name;
    }
    return "nothing";
  }

  std::string name_;
  std::vector<ParameterInfo> parameters_;
  Device& device_;
  std::vector<TensorView> arenas_;
  ParameterSet* tables_of_;  ///< null: the tables are its own, if it has any
  std::vector<std::unique_ptr<RowTable>> tables_;
  std::deque<std::atomic<std::uint64_t>> versions_;
  std::atomic<std::uint64_t> all_{0};
};

/// Value of one element: a function of seed, parameter name and global index.
double initial_value(const ParameterSpec& spec, RandomKey key, std::uint64_t element) {
  switch (spec.init) {
    case Initializer::kZero:
      return 0;
    case Initializer::kOne:
      return 1;
    case Initializer::kConstant:
      return spec.init_scale;
    case Initializer::kNormal:
      return spec.init_scale * random_normal(key, 0, element);
    case Initializer::kUniform:
      return spec.init_scale * (2 * random_uniform(key, 0, element) - 1);
    case Initializer::kUniformFromZero:
      return spec.init_scale * random_uniform(key, 0, element);
  }
  return 0;
}

/// Fills this rank's shard; a complex number is two reals with an index of their own.
template <typename Real>
void fill(const ParameterInfo& info, RandomKey key, Real* out) {
  const ParameterSpec& spec = info.spec;
  const int parts = dtype_is_complex(spec.dtype) ? 2 : 1;
  const int rank = spec.shape.rank();
  parallel_for(info.local.elements(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t local = begin; local < end; ++local) {
      std::int64_t rest = local;
      std::int64_t global = 0;
      std::int64_t stride = 1;
      for (int dim = rank - 1; dim >= 0; --dim) {
        const std::int64_t extent = info.local[dim];
        global += (rest % extent + info.offset[dim]) * stride;
        rest /= extent;
        stride *= spec.shape[dim];
      }
      for (int part = 0; part < parts; ++part) {
        const auto element = static_cast<std::uint64_t>(global * parts + part);
        out[local * parts + part] = static_cast<Real>(initial_value(spec, key, element));
      }
    }
  });
}

void fill_host(const ParameterInfo& info, RandomKey key, TensorView out) {
  switch (out.dtype) {
    case DType::kF32:
    case DType::kC64:
      fill(info, key, out.as<float>());
      return;
    case DType::kF64:
    case DType::kC128:
      fill(info, key, out.as<double>());
      return;
    default:
      fail_config("parameter '" + info.spec.name + "' has dtype " + std::string(dtype_name(out.dtype)) +
                  "; initial values exist for f32, f64, c64 and c128");
  }
}

}  // namespace

std::unique_ptr<ParameterSet> make_parameter_set(std::string name,
                                                 const std::vector<ParameterInfo>& parameters, Device& device,
                                                 SetContents contents) {
  return std::make_unique<DeviceParameterSet>(std::move(name), parameters, device, contents, nullptr);
}

std::unique_ptr<ParameterSet> make_parameter_set_beside(std::string name, ParameterSet& tables_of,
                                                        Device& device) {
  const auto parameters = tables_of.parameters();
  return std::make_unique<DeviceParameterSet>(
      std::move(name), std::vector<ParameterInfo>(parameters.begin(), parameters.end()), device,
      SetContents::kDense, &tables_of);
}

void initial_rows(const ParameterInfo& table, std::uint64_t seed_init, std::span<const std::int64_t> ids,
                  TensorView rows) {
  ParameterInfo chunk = table;
  chunk.offset[0] = ids.front();
  chunk.local[0] = static_cast<std::int64_t>(ids.size());
  fill_host(chunk, random_key(seed_init, "init:" + table.spec.name), rows);
}

void initialise(ParameterSet& set, std::uint64_t seed_init, Device& device) {
  std::vector<std::byte> staging;
  for (const ParameterInfo& info : set.parameters()) {
    const RandomKey key = random_key(seed_init, "init:" + info.spec.name);
    TensorView host;
    host.dtype = info.spec.dtype;
    host.shape = info.local;
    if (RowTable* table = set.table(info.index)) {
      graph::for_each_chunk(*table, [&](std::span<const std::int64_t> ids, TensorView rows) {
        initial_rows(info, seed_init, ids, rows);
        table->write(ids, rows);
      });
      continue;
    }
    const TensorView target = set.tensor(info.index);
    if (target.empty()) continue;
    if (target.space == MemorySpace::kHost) {
      fill_host(info, key, target);
      continue;
    }
    staging.resize(host.bytes());
    host.data = staging.data();
    fill_host(info, key, host);
    device.copy(host, target);
  }
  set.touch(-1);
}

TENON_ABI_END

// Rows in one mapping of host memory. Later tiers implement the same interface and keep rows elsewhere. Rows
// are copied in words by relaxed loads and stores, which costs no more than memcpy for rows of usual width
// and is what lock-free workers need.

namespace tenon::graph {
namespace {

/// Neighbouring rows that share a version: one count per row would be an eighth of a narrow table.
constexpr std::size_t kVersionRows = 64;
/// Whole tables pass through buffers of this size.
constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;
/// Reads ask for the row this far ahead while they copy one: rows are anywhere in a table larger than caches.
constexpr std::size_t kPrefetchDistance = 8;

/// Zeroed memory that takes no physical page before it is written, in huge pages where the system has them:
/// random rows of a large table would otherwise miss the TLB each time.
class Mapping {
 public:
  Mapping(const std::string& name, std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      fail_run(fmt::format("row table '{}': the system gave no {:.1f} MiB of memory for its rows", name,
                           static_cast<double>(bytes) / (1024.0 * 1024.0)));
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(memory);
  }
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

template <typename Word>
void load_words(const std::byte* row, std::byte* out, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(Word)) {
    const Word word = __atomic_load_n(reinterpret_cast<const Word*>(row + at), __ATOMIC_RELAXED);
    std::memcpy(out + at, &word, sizeof word);
  }
}

template <typename Word>
void store_words(std::byte* row, const std::byte* in, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, in + at, sizeof word);
    __atomic_store_n(reinterpret_cast<Word*>(row + at), word, __ATOMIC_RELAXED);
  }
}

/// Calls fn with a value of the widest word that divides a row.
template <typename Fn>
void with_word(std::size_t row_bytes, Fn&& fn) {
  if (row_bytes % 8 == 0) {
    fn(std::uint64_t{});
  } else if (row_bytes % 4 == 0) {
    fn(std::uint32_t{});
  } else {
    fn(std::uint8_t{});
  }
}

class HostRowTable final : public RowTable {
 public:
  HostRowTable(std::string name, DType dtype, std::int64_t rows, std::int64_t width, std::int64_t first,
               std::int64_t last)
      : name_(std::move(name)),
        dtype_(dtype),
        rows_(rows),
        width_(width),
        first_(first),
        last_(last),
        row_bytes_(dtype_bytes(dtype, width)),
        memory_(name_, row_bytes_ * owned()),
        versions_(
            std::make_unique<std::atomic<std::uint64_t>[]>((owned() + kVersionRows - 1) / kVersionRows)) {}

  std::int64_t rows() const override { return rows_; }
  std::int64_t width() const override { return width_; }
  DType dtype() const override { return dtype_; }
  std::int64_t owned_first() const override { return first_; }
  std::int64_t owned_last() const override { return last_; }

  void read(std::span<const std::int64_t> ids, TensorView out) const override {
    require_room(ids, out);
    auto* to = static_cast<std::byte*>(out.data);
    with_word(row_bytes_, [&](auto word) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (i + kPrefetchDistance < ids.size())
          __builtin_prefetch(memory_.data() + (ids[i + kPrefetchDistance] - first_) * stride());
        load_words<decltype(word)>(memory_.data() + slot(ids[i]) * row_bytes_, to + i * row_bytes_,
                                   row_bytes_);
      }
    });
  }

  void write(std::span<const std::int64_t> ids, TensorView values) override {
    require_room(ids, values);
    const auto* from = static_cast<const std::byte*>(values.data);
    with_word(row_bytes_, [&](auto word) {
      std::size_t counted = SIZE_MAX;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::size_t at = slot(ids[i]);
        store_words<decltype(word)>(memory_.data() + at * row_bytes_, from + i * row_bytes_, row_bytes_);
        if (at / kVersionRows == counted) continue;
        counted = at / kVersionRows;
        versions_[counted].fetch_add(1, std::memory_order_relaxed);
      }
    });
  }

  void versions(std::span<const std::int64_t> ids, std::span<std::uint64_t> out) const override {
    for (std::size_t i = 0; i < ids.size(); ++i)
      out[i] = versions_[slot(ids[i]) / kVersionRows].load(std::memory_order_relaxed);
  }

 private:
  std::size_t owned() const { return last_ - first_; }
  std::int64_t stride() const { return static_cast<std::int64_t>(row_bytes_); }

  std::size_t slot(std::int64_t id) const {
    if (id < first_ || id >= last_) {
      fail_run(fmt::format("row table '{}': row {} is not one of this rank's rows [{}, {})", name_, id,
                           first_, last_));
    }
    return id - first_;
  }

  void require_room(std::span<const std::int64_t> ids, const TensorView& view) const {
    if (view.dtype != dtype_ || view.elements() != static_cast<std::int64_t>(ids.size()) * width_) {
      fail_run(fmt::format("row table '{}': expected {} rows of {} {}, found a tensor {} of {}", name_,
                           ids.size(), width_, dtype_name(dtype_), view.shape.text(),
                           dtype_name(view.dtype)));
    }
  }

  std::string name_;
  DType dtype_;
  std::int64_t rows_, width_, first_, last_;
  std::size_t row_bytes_;
  Mapping memory_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> versions_;
};

}  // namespace

std::unique_ptr<RowTable> make_row_table(std::string name, DType dtype, std::int64_t rows, std::int64_t width,
                                         std::int64_t first, std::int64_t last) {
  return std::make_unique<HostRowTable>(std::move(name), dtype, rows, width, first, last);
}

void for_each_chunk(const RowTable& table, const RowChunk& body) {
  const auto row_bytes = std::max<std::int64_t>(1, dtype_bytes(table.dtype(), table.width()));
  const std::int64_t rows = std::max<std::int64_t>(1, kChunkBytes / row_bytes);
  std::vector<std::int64_t> ids;
  std::vector<std::byte> memory;
  for (std::int64_t first = table.owned_first(); first < table.owned_last(); first += rows) {
    ids.resize(std::min(rows, table.owned_last() - first));
    std::iota(ids.begin(), ids.end(), first);
    TensorView view;
    view.dtype = table.dtype();
    view.shape = Shape{static_cast<std::int64_t>(ids.size()), table.width()};
    memory.resize(view.bytes());
    view.data = memory.data();
    body(ids, view);
  }
}

// Duplicates are summed in the order in which they were added, so the sum does not depend on sorting. Tables
// are independent of each other and share the threads.

void RowGradients::clear() {
  for (Table& table : tables_) {
    table.ids.clear();
    table.values.clear();
  }
}

void RowGradients::add(int parameter, std::span<const std::int64_t> ids, TensorView values) {
  if (values.dtype != DType::kF32 && values.dtype != DType::kF64) {
    fail_plugin("row gradients must be f32 or f64, found " + std::string(dtype_name(values.dtype)));
  }
  auto found =
      std::find_if(tables_.begin(), tables_.end(), [&](const Table& t) { return t.parameter == parameter; });
  if (found == tables_.end()) {
    tables_.push_back({});
    found = std::prev(tables_.end());
    found->parameter = parameter;
  }
  found->dtype = values.dtype;
  found->width = ids.empty() ? found->width : values.elements() / static_cast<std::int64_t>(ids.size());
  const std::span<std::byte> raw = values.raw();
  make_room(found->ids, found->ids.size() + ids.size(), 0);
  make_room(found->values, found->values.size() + raw.size(), 0);
  found->ids.insert(found->ids.end(), ids.begin(), ids.end());
  found->values.insert(found->values.end(), raw.begin(), raw.end());
}

void RowGradients::scale(double factor) {
  for (Table& table : tables_) {
    if (table.dtype == DType::kF64) {
      auto* values = reinterpret_cast<double*>(table.values.data());
      for (std::size_t i = 0; i < table.values.size() / sizeof(double); ++i) values[i] *= factor;
    } else {
      auto* values = reinterpret_cast<float*>(table.values.data());
      for (std::size_t i = 0; i < table.values.size() / sizeof(float); ++i)
        values[i] = static_cast<float>(values[i] * factor);
    }
  }
}

/// Stable counting sort by id, least significant digit first: it keeps equal ids in the order of arrival, and
/// ids are as many as rows of a batch while digits are two or three.
void RowGradients::sort(Table& table) {
  constexpr int kDigitBits = 11;
  constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
  const std::size_t count = table.ids.size();
  make_room(table.order, count, 0);
  make_room(table.sorted, count, 0);
  table.order.resize(count);
  table.sorted.resize(count);
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    table.order[i] = {table.ids[i], static_cast<std::int64_t>(i)};
    largest = std::max(largest, static_cast<std::uint64_t>(table.ids[i]));
  }
  for (int shift = 0; shift < 64 && largest >> shift != 0; shift += kDigitBits) {
    std::array<std::uint32_t, kDigits + 1> begin{};
    const auto digit = [shift](std::int64_t id) {
      return static_cast<std::size_t>(static_cast<std::uint64_t>(id) >> shift) & (kDigits - 1);
    };
    for (const auto& entry : table.order) ++begin[digit(entry.first) + 1];
    for (std::size_t d = 0; d < kDigits; ++d) begin[d + 1] += begin[d];
    for (const auto& entry : table.order) table.sorted[begin[digit(entry.first)]++] = entry;
    std::swap(table.order, table.sorted);
  }
}

template <typename Real>
void RowGradients::sum(Table& table) {
  sort(table);
  const std::size_t width = table.width;
  table.unique.clear();
  table.counts.clear();
  make_room(table.unique, table.ids.size(), 0);
  make_room(table.counts, table.ids.size(), 0);
  make_room(table.sums, table.values.size(), 0);
  table.sums.resize(table.values.size());
  const auto* values = reinterpret_cast<const Real*>(table.values.data());
  auto* sums = reinterpret_cast<Real*>(table.sums.data());
  for (const auto& [id, index] : table.order) {
    const Real* row = values + static_cast<std::size_t>(index) * width;
    if (!table.unique.empty() && table.unique.back() == id) {
      ++table.counts.back();
      Real* out = sums + (table.unique.size() - 1) * width;
      for (std::size_t i = 0; i < width; ++i) out[i] += row[i];
    } else {
      table.unique.push_back(id);
      table.counts.push_back(1);
      std::memcpy(sums + (table.unique.size() - 1) * width, row, width * sizeof(Real));
    }
  }
}

std::span<const RowGradient> RowGradients::summed() {
  result_.resize(tables_.size());
  parallel_for(static_cast<std::int64_t>(tables_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      Table& table = tables_[t];
      if (table.dtype == DType::kF64) {
        sum<double>(table);
      } else {
        sum<float>(table);
      }
      TensorView values;
      values.data = table.sums.data();
      values.dtype = table.dtype;
      values.shape = Shape{static_cast<std::int64_t>(table.unique.size()), table.width};
      result_[t] = {table.parameter, table.unique, values, table.counts};
    }
  });
  return result_;
}

}  // namespace tenon::graph
