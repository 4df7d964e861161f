// Rehearses a tier of memory: the rows of a table live in a file, and row-sparse updates, versions and whole
// passes through the table are those of rows in host memory, to the bit.
#include "support.hpp"

#include "graph/row_table.hpp"

#include <tenon/registry.hpp>
#include <tenon/sdk/row_update.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/tier.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <random>

namespace rehearsal::tier_test {
namespace {

using namespace tenon;

constexpr std::int64_t kRows = 500, kFirst = 100, kLast = 400, kWide = 6;

/// Rows of one table in a file without a name.
class FileRows final : public RowMemory {
 public:
  explicit FileRows(const RowMemorySpec& spec)
      : first_(spec.first), row_bytes_(spec.row_bytes()), file_(std::tmpfile()) {
    const auto bytes = static_cast<off_t>(row_bytes_) * spec.rows();
    EXPECT_EQ(::ftruncate(::fileno(file_), bytes), 0);
  }
  ~FileRows() override { std::fclose(file_); }
  void read(std::span<const std::int64_t> ids, std::byte* out) const override {
    for (const std::int64_t id : ids) {
      EXPECT_EQ(::pread(::fileno(file_), out, row_bytes_, place(id)), static_cast<ssize_t>(row_bytes_));
      out += row_bytes_;
    }
  }
  void write(std::span<const std::int64_t> ids, const std::byte* values) override {
    for (const std::int64_t id : ids) {
      EXPECT_EQ(::pwrite(::fileno(file_), values, row_bytes_, place(id)), static_cast<ssize_t>(row_bytes_));
      values += row_bytes_;
    }
  }
  void scan(std::span<const std::int64_t> ids, std::byte* out) const override { read(ids, out); }
  void fill(std::span<const std::int64_t> ids, const std::byte* values) override { write(ids, values); }
  void* query(std::string_view) override { return nullptr; }

 private:
  off_t place(std::int64_t id) const { return static_cast<off_t>(row_bytes_) * (id - first_); }
  std::int64_t first_;
  std::size_t row_bytes_;
  std::FILE* file_;
};

std::vector<std::string> allocated;

class FileTier final : public Tier {
 public:
  static constexpr ComponentInfo kInfo{.id = "file", .summary = "rows in files"};
  explicit FileTier(const Options&) {}
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    allocated.push_back(spec.name());
    return std::make_unique<FileRows>(spec);
  }
  std::int64_t host_bytes(const RowMemorySpec&) const override { return 0; }
  void* query(std::string_view) override { return nullptr; }
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.tier", .version = "1.0.0", .summary = "memory tiers"},
                    FileTier)

/// Adagrad with one sum per row.
void update(RowTable& weights, RowTable& sums, const RowGradient& gradient) {
  RowTable* state[] = {&sums};
  for_each_row_block(weights, state, gradient, [](const RowBlock& block) {
    for (std::int64_t r = 0; r < block.weights.shape[0]; ++r) {
      float* w = block.weights.as<float>() + r * kWide;
      const float* g = block.gradients.as<float>() + r * kWide;
      float& sum = block.state[0].as<float>()[r];
      for (std::int64_t j = 0; j < kWide; ++j) sum += g[j] * g[j];
      for (std::int64_t j = 0; j < kWide; ++j) w[j] -= 0.1F * g[j] / std::sqrt(sum + 1e-6F);
    }
  });
}

std::vector<float> all_rows(const RowTable& table) {
  std::vector<float> all;
  graph::for_each_chunk(table, [&](std::span<const std::int64_t> ids, TensorView rows) {
    table.read(ids, rows);
    const auto values = rows.span<float>();
    all.insert(all.end(), values.begin(), values.end());
  });
  return all;
}

TEST(Tier, RowsInAFileAreTheRowsOfATable) {
  Registry registry;
  registry.add_builtin(plugin);
  tenon::testing::QuietHost host;
  const auto tier = tenon::testing::make<Tier>(registry, host, "file", "");

  class OneTier final : public RowPlaces {
   public:
    explicit OneTier(Tier& tier) : tier_(tier) {}
    std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override { return tier_.allocate(spec); }

   private:
    Tier& tier_;
  } places(*tier);
  const RowMemorySpec weights{.table = "w", .first = kFirst, .last = kLast, .width = kWide};
  const RowMemorySpec sums{.table = "w", .state = "s", .first = kFirst, .last = kLast, .width = 1};
  const auto plain = graph::make_row_table(weights, kRows), plain_sums = graph::make_row_table(sums, kRows);
  const auto tiered = graph::make_row_table(weights, kRows, &places);
  const auto tiered_sums = graph::make_row_table(sums, kRows, &places);
  EXPECT_EQ(allocated, (std::vector<std::string>{"w", "s of w"}));
  EXPECT_EQ(all_rows(*tiered), std::vector<float>((kLast - kFirst) * kWide, 0.0F));

  std::mt19937 random(3);
  std::vector<std::int64_t> everywhere;
  for (std::int64_t id = kFirst; id < kLast; ++id) everywhere.push_back(id);
  for (int slot = 0; slot < 20; ++slot) {
    std::vector<std::int64_t> ids;
    std::sample(everywhere.begin(), everywhere.end(), std::back_inserter(ids), 40, random);
    std::vector<float> values(ids.size() * kWide);
    for (float& value : values) value = static_cast<float>(random() % 1000) / 500 - 1;
    const RowGradient gradient{0, ids, {values.data(), Shape{static_cast<std::int64_t>(ids.size()), kWide}}};
    update(*plain, *plain_sums, gradient);
    update(*tiered, *tiered_sums, gradient);
  }
  EXPECT_EQ(all_rows(*tiered), all_rows(*plain));
  EXPECT_EQ(all_rows(*tiered_sums), all_rows(*plain_sums));
  EXPECT_NE(all_rows(*tiered), std::vector<float>((kLast - kFirst) * kWide, 0.0F));
  std::vector<std::uint64_t> of_plain(everywhere.size()), of_tiered(everywhere.size());
  plain->versions(everywhere, of_plain);
  tiered->versions(everywhere, of_tiered);
  for (std::size_t i = 0; i < everywhere.size(); ++i) EXPECT_GT(of_tiered[i], 0U) << everywhere[i];

  // What is no row of this rank never reaches the tier.
  std::vector<float> row(kWide);
  const std::int64_t beyond = kLast;
  const auto refused = [&](const RowTable& table) {
    try {
      table.read({&beyond, 1}, {row.data(), Shape{1, kWide}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused(*tiered), ::testing::HasSubstr("row 400 is not one of this rank's rows [100, 400)"));
  EXPECT_EQ(refused(*tiered), refused(*plain));
}

}  // namespace
}  // namespace rehearsal::tier_test
