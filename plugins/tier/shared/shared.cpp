// Tier `shared`: rows in shared memory that outlives the process, so that a trainer that was killed goes on
// without reading them from its checkpoint.
#include "shared_rows.hpp"

#include <tenon/config.hpp>
#include <tenon/plugin.hpp>

#include <algorithm>

namespace tenon::tier_shared {

class Shared final : public Tier {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("undo", nullptr)
          .doc_text("shared memory of each table, and of each state, for rows as they were at the newest "
                    "checkpoint: \"64MiB\"; absent: a quarter of the rows' bytes, and for small tables twice "
                    "all rows, up to 1 MiB"),
  };
  static constexpr ComponentInfo kInfo{.id = "shared",
                                       .summary = "rows in shared memory that outlives the process",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOGWILD};

  explicit Shared(const Options& options) : undo_(options.has("undo") ? options.bytes("undo") : 0) {}

  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    return std::make_unique<SharedRows>(spec, undo_entries(spec));
  }
  std::int64_t host_bytes(const RowMemorySpec& spec) const override {
    return static_cast<std::int64_t>(Layout(spec, undo_entries(spec)).bytes);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  /// All rows of a small table change between two checkpoints, and once more while the second is written.
  static constexpr std::int64_t kSmall = std::int64_t{1} << 20;

  std::int64_t undo_entries(const RowMemorySpec& spec) const {
    const auto row_bytes = static_cast<std::int64_t>(spec.row_bytes());
    const std::int64_t entry = row_bytes + static_cast<std::int64_t>(sizeof(OldRow));
    const std::int64_t own = std::max(row_bytes * spec.rows() / 4, std::min(2 * spec.rows() * entry, kSmall));
    return std::max<std::int64_t>(1, (undo_ > 0 ? undo_ : own) / entry);
  }

  std::int64_t undo_;  ///< bytes; 0: by the rows
};

}  // namespace tenon::tier_shared

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tier_shared",
                               .version = "0.1.0",
                               .summary = "rows in shared memory that outlives the process"},
             tenon::tier_shared::Shared)
