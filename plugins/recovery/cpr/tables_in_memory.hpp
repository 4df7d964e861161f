// Row tables without a run, for the tests of this folder.
#pragma once

#include "trackers.hpp"

#include <tenon/recovery.hpp>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace tenon::recovery_cpr {

class MemoryTable final : public RowTable {
 public:
  MemoryTable(std::int64_t rows, std::int64_t width)
      : width_(width), values(static_cast<std::size_t>(rows * width), 0.0f) {}
  std::int64_t rows() const override { return static_cast<std::int64_t>(values.size()) / width_; }
  std::int64_t width() const override { return width_; }
  DType dtype() const override { return DType::kF32; }
  std::int64_t owned_first() const override { return 0; }
  std::int64_t owned_last() const override { return rows(); }
  void read(std::span<const std::int64_t> ids, TensorView out) const override {
    auto* to = static_cast<float*>(out.data);
    for (const std::int64_t id : ids) {
      std::memcpy(to, values.data() + id * width_, width_ * sizeof(float));
      to += width_;
    }
  }
  void write(std::span<const std::int64_t> ids, TensorView in) override {
    const auto* from = static_cast<const float*>(in.data);
    for (const std::int64_t id : ids) {
      std::memcpy(values.data() + id * width_, from, width_ * sizeof(float));
      from += width_;
    }
  }
  void versions(std::span<const std::int64_t>, std::span<std::uint64_t>) const override {}

 private:
  std::int64_t width_;

 public:
  std::vector<float> values;
};

/// Tables with the given numbers of rows, all of one width.
class MemorySet final : public ParameterSet {
 public:
  MemorySet(const std::vector<std::int64_t>& rows, std::int64_t width) {
    for (std::size_t t = 0; t < rows.size(); ++t) {
      ParameterInfo info;
      info.spec.name = "table" + std::to_string(t);
      info.spec.role = Role::kRowTable;
      info.spec.shape = info.local = Shape{rows[t], width};
      info.offset = Shape{0, 0};
      info.index = static_cast<int>(t);
      infos_.push_back(info);
      tables.push_back(std::make_unique<MemoryTable>(rows[t], width));
    }
  }
  std::string_view name() const override { return "live"; }
  std::span<const ParameterInfo> parameters() const override { return infos_; }
  int arenas() const override { return 0; }
  TensorView arena(int) const override { return {}; }
  TensorView tensor(int) const override { return {}; }
  RowTable* table(int parameter) const override { return tables[parameter].get(); }
  std::uint64_t version(int) const override { return 0; }
  void touch(int) override {}

  std::vector<std::unique_ptr<MemoryTable>> tables;

 private:
  std::vector<ParameterInfo> infos_;
};

/// Returns the tables of `set` as trackers see them.
inline std::vector<TrackedTable> tracked(const MemorySet& set, const FailureDomains& domains,
                                         std::int64_t parts) {
  std::vector<TrackedTable> tables;
  for (const ParameterInfo& info : set.parameters())
    tables.push_back(make_tracked(info, *set.table(info.index), domains, parts));
  return tables;
}

}  // namespace tenon::recovery_cpr
