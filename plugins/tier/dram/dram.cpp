// Tier `dram`: rows in host memory, as tables have them without a tier, on the memory nodes of one's choice.
#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/plugin.hpp>
#include <tenon/tier.hpp>

#include <fmt/format.h>

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <string>
#include <string_view>

namespace tenon::tier_dram {
namespace {

/// Bits of memory nodes, as the system calls take them.
constexpr unsigned long kMostNodes = 1024;
using Nodes = std::array<unsigned long, kMostNodes / (sizeof(unsigned long) * CHAR_BIT)>;

struct Policy {
  int mode = MPOL_DEFAULT;
  Nodes nodes{};
};

/// The nodes on which this process may have memory.
Nodes allowed_nodes() {
  Nodes nodes{};
  int mode = 0;
  if (syscall(SYS_get_mempolicy, &mode, nodes.data(), kMostNodes, nullptr, MPOL_F_MEMS_ALLOWED) != 0)
    fail_run(fmt::format("the system does not say which memory nodes it has: {}", std::strerror(errno)));
  return nodes;
}

bool holds(const Nodes& nodes, unsigned long node) {
  constexpr unsigned long kBits = sizeof(unsigned long) * CHAR_BIT;
  return (nodes[node / kBits] >> node % kBits & 1) != 0;
}

Policy policy_of(std::string_view numa) {
  if (numa == "system") return {};
  if (numa == "local") return {MPOL_LOCAL, {}};
  if (numa == "interleave") return {MPOL_INTERLEAVE, allowed_nodes()};
  unsigned long node = 0;
  const auto [end, code] = std::from_chars(numa.data(), numa.data() + numa.size(), node);
  if (code != std::errc() || end != numa.data() + numa.size()) {
    fail_config(fmt::format(
        "numa = '{}': expected \"system\", \"local\", \"interleave\" or the number of a memory node: \"0\"",
        numa));
  }
  const Nodes allowed = allowed_nodes();
  if (node >= kMostNodes || !holds(allowed, node)) {
    std::string known;
    for (unsigned long i = 0; i < kMostNodes; ++i) {
      if (holds(allowed, i)) known += fmt::format("{}{}", known.empty() ? "" : ", ", i);
    }
    fail_config(fmt::format("numa = '{}': this process may use the memory nodes {}", numa, known));
  }
  Policy policy{MPOL_BIND, {}};
  constexpr unsigned long kBits = sizeof(unsigned long) * CHAR_BIT;
  policy.nodes[node / kBits] = 1UL << node % kBits;
  return policy;
}

}  // namespace

class Dram final : public Tier {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("numa", "\"system\"")
          .doc_text(
              "memory node of the rows: system: as the process has its other memory; local: that of the "
              "thread that writes a page first; interleave: all, page by page; or a number"),
      option::boolean("huge_pages", "true").doc_text("in huge pages where the system has them"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "dram", .summary = "rows in host memory", .options = kOptions, .capabilities = TENON_CAP_HOGWILD};

  explicit Dram(const Options& options)
      : numa_(options.text("numa")), policy_(policy_of(numa_)), huge_(options.boolean("huge_pages")) {}

  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    HostPages pages{.huge = huge_};
    if (policy_.mode != MPOL_DEFAULT) {
      pages.prepare = [this, name = spec.name()](std::span<std::byte> memory) { place(name, memory); };
    }
    return make_host_rows(spec, pages);
  }
  std::int64_t host_bytes(const RowMemorySpec& spec) const override {
    return static_cast<std::int64_t>(spec.row_bytes()) * spec.rows();
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  void place(const std::string& name, std::span<std::byte> memory) const {
    const bool named = policy_.mode != MPOL_LOCAL;
    if (syscall(SYS_mbind, memory.data(), memory.size(), policy_.mode, named ? policy_.nodes.data() : nullptr,
                named ? kMostNodes : 0, 0) == 0)
      return;
    fail_run(fmt::format("row table '{}': the system does not place {} bytes with numa = '{}': {}", name,
                         memory.size(), numa_, std::strerror(errno)));
  }

  std::string numa_;
  Policy policy_;
  bool huge_;
};

}  // namespace tenon::tier_dram

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tier_dram", .version = "0.1.0", .summary = "rows in host memory"},
             tenon::tier_dram::Dram)
