// For tests: weights whose row tables count how they are read. Header only: two programs of tests include it.
#pragma once

#include <tenon/parameter.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::recsys {

class CountedTable final : public RowTable {
 public:
  explicit CountedTable(RowTable& rows) : rows_(rows) {}
  std::int64_t rows() const override { return rows_.rows(); }
  std::int64_t width() const override { return rows_.width(); }
  DType dtype() const override { return rows_.dtype(); }
  std::int64_t owned_first() const override { return rows_.owned_first(); }
  std::int64_t owned_last() const override { return rows_.owned_last(); }
  void read(std::span<const std::int64_t> ids, TensorView out) const override {
    read_rows += ids.size();
    rows_.read(ids, out);
  }
  void scan(std::span<const std::int64_t> ids, TensorView out) const override {
    scanned_rows += ids.size();
    rows_.scan(ids, out);
  }
  void write(std::span<const std::int64_t> ids, TensorView values) override { rows_.write(ids, values); }
  void versions(std::span<const std::int64_t> ids, std::span<std::uint64_t> out) const override {
    rows_.versions(ids, out);
  }

  mutable std::atomic<std::size_t> read_rows{0}, scanned_rows{0};

 private:
  RowTable& rows_;
};

/// The weights of `set`, with counted tables.
class CountedWeights final : public ParameterSet {
 public:
  explicit CountedWeights(ParameterSet& set) : set_(set) {
    for (const ParameterInfo& info : set.parameters()) {
      RowTable* const table = set.table(info.index);
      tables_.push_back(table == nullptr ? nullptr : std::make_unique<CountedTable>(*table));
    }
  }
  std::string_view name() const override { return set_.name(); }
  std::span<const ParameterInfo> parameters() const override { return set_.parameters(); }
  int arenas() const override { return set_.arenas(); }
  TensorView arena(int index) const override { return set_.arena(index); }
  TensorView tensor(int parameter) const override { return set_.tensor(parameter); }
  RowTable* table(int parameter) const override { return tables_.at(parameter).get(); }
  std::uint64_t version(int parameter) const override { return set_.version(parameter); }
  void touch(int parameter) override { set_.touch(parameter); }

  std::size_t read_rows() const {
    std::size_t sum = 0;
    for (const auto& table : tables_) sum += table == nullptr ? 0 : table->read_rows.load();
    return sum;
  }
  std::size_t scanned_rows() const {
    std::size_t sum = 0;
    for (const auto& table : tables_) sum += table == nullptr ? 0 : table->scanned_rows.load();
    return sum;
  }

 private:
  ParameterSet& set_;
  std::vector<std::unique_ptr<CountedTable>> tables_;
};

}  // namespace tenon::recsys
