// For tests of data sets: a component made from TOML without a registry, and the memory of one batch. Header
// only; needs GoogleTest.
#pragma once

#include <tenon/config.hpp>
#include <tenon/dataset.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::testing {

/// A data set and the options that it keeps views of.
template <typename Data>
struct MadeData {
  std::unique_ptr<ResolvedOptions> options;
  std::unique_ptr<Data> data;
  Data* operator->() const { return data.get(); }
};

/// `more`: constructor arguments after the options, for instance a Host.
template <typename Data, typename... More>
MadeData<Data> make_data(const std::string& toml, More&... more) {
  const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
  MadeData<Data> made;
  made.options = resolve_options(OptionRequest{.table = config.root(),
                                               .owner = "data." + std::string(Data::kInfo.id),
                                               .specs = option_list(Data::kOptions)})
                     .options;
  made.data = std::make_unique<Data>(*made.options, more...);
  return made;
}

/// One batch and its memory, filled with a value that no test expects.
struct Batch {
  explicit Batch(const Dataset& data) {
    for (const DataField& field : data.info().fields) {
      std::vector<std::int64_t> extents{data.batch()};
      for (const std::int64_t extent : field.shape.extents()) extents.push_back(extent);
      const Shape shape{std::span<const std::int64_t>(extents)};
      names.push_back(field.name);
      memory.emplace_back(static_cast<std::size_t>(dtype_bytes(field.dtype, shape.elements())),
                          std::byte{0x5A});
      views.push_back({memory.back().data(), shape, field.dtype});
    }
  }
  Batch(const Batch&) = delete;

  template <typename T>
  std::vector<T> values(std::size_t field) const {
    const auto all = views[field].span<T>();
    return {all.begin(), all.end()};
  }
  /// Returns the values of one sample of the batch.
  template <typename T>
  std::vector<T> values(std::string_view field, std::int64_t sample) const {
    const std::size_t place = std::find(names.begin(), names.end(), field) - names.begin();
    EXPECT_LT(place, names.size()) << field;
    const auto all = views.at(place).span<T>();
    const auto size = static_cast<std::int64_t>(all.size()) / views[place].shape[0];
    return {all.begin() + sample * size, all.begin() + (sample + 1) * size};
  }

  std::vector<std::string> names;
  std::vector<std::vector<std::byte>> memory;
  std::vector<TensorView> views;
};

/// Expects that a split of the data set has the same bytes read one by one as in batches of its own size.
inline void expect_reads_agree(Dataset& data, Split split, std::int64_t first, std::int64_t count) {
  Batch whole(data), one(data);
  data.read({.split = split, .first = first, .count = count}, whole.views);
  for (std::int64_t i = 0; i < count; ++i) {
    data.read({.split = split, .first = first + i, .count = 1}, one.views);
    for (std::size_t field = 0; field < whole.views.size(); ++field) {
      const std::size_t size = whole.memory[field].size() / static_cast<std::size_t>(data.batch());
      EXPECT_TRUE(std::equal(one.memory[field].begin(),
                             one.memory[field].begin() + static_cast<std::ptrdiff_t>(size),
                             whole.memory[field].begin() + i * static_cast<std::ptrdiff_t>(size)))
          << "sample " << first + i << ", field " << whole.names[field];
    }
  }
}

}  // namespace tenon::testing
