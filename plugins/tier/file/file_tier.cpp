// Tier `file`: rows in a file of the table's own on a disk of this machine, with a bounded number of pages in
// memory. The file has no name and goes with the process: what lasts are checkpoints.
#include "file_rows.hpp"
#include "rings.hpp"
#include "scratch_folder.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/parallel.hpp>
#include <tenon/plugin.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

namespace tenon::tier_file {

class FileTier final : public Tier {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::path("folder", nullptr)
          .mandatory()
          .doc_text("on a disk of this machine; the files in it have no names and go with the process"),
      option::text("resident", "\"64MiB\"")
          .doc_text("bytes of pages of each table that memory holds at most"),
  };
  static constexpr ComponentInfo kInfo{.id = "file",
                                       .summary = "rows in a file, with a bounded number of pages in memory",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOGWILD};

  FileTier(const Options& options, Host& host)
      : folder_(std::string(options.text("folder"))), resident_(options.bytes("resident")) {
    if (!folder_.direct()) {
      host.log(
          LogLevel::kWarning,
          fmt::format("tier 'file': the file system of '{}' takes no O_DIRECT: pages go through the cache "
                      "of the system, which 'resident' does not bound",
                      folder_.path()));
    }
    if (!rings_.why_not().empty()) {
      host.log(LogLevel::kWarning, fmt::format("tier 'file': the system offers no io_uring ({}): pages are "
                                               "read and written one after another",
                                               rings_.why_not()));
    }
  }

  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    const PageLayout layout(spec);
    const std::int64_t resident = resident_ / static_cast<std::int64_t>(layout.page_bytes);
    const std::int64_t needed = std::min<std::int64_t>(parallel_threads(), layout.pages);
    if (resident < needed) {
      fail_config(
          fmt::format("tier 'file': resident = {} bytes hold {} pages of {} bytes of row table '{}', "
                      "and each of {} threads needs one: expected at least {} bytes",
                      resident_, resident, layout.page_bytes, spec.name(), needed,
                      needed * static_cast<std::int64_t>(layout.page_bytes)));
    }
    return std::make_unique<FileRows>(
        spec, resident, folder_.make_file(spec.name(), layout.file_bytes(), rings_), folder_.path());
  }
  std::int64_t host_bytes(const RowMemorySpec& spec) const override {
    const PageLayout layout(spec);
    return PageCache::host_bytes(layout, resident_ / static_cast<std::int64_t>(layout.page_bytes));
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  ScratchFolder folder_;
  std::int64_t resident_;
  Rings rings_;
};

}  // namespace tenon::tier_file

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tier_file",
                               .version = "0.1.0",
                               .summary = "rows in files, with a bounded number of pages in memory"},
             tenon::tier_file::FileTier)
