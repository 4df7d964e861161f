// The plugin `tenon.sync_local`: components `local_sgd` and `post_local_sgd`, whole, and those of its
// headers.
#include "bmuf.hpp"
#include "easgd.hpp"
#include "palsgd.hpp"
#include "rounds.hpp"

#include <tenon/plugin.hpp>

namespace tenon::sync_local {

/// Sync `local_sgd` (Stich 2018): every replica updates its own weights, and after every `interval` slots all
/// replace them by the mean. Optimizer state stays local. With a warm-up it is post-local SGD (Lin et al.
/// 2018).
class LocalSgd : public Rounds {
 public:
  static constexpr OptionSpec kOptions[] = {
      interval_option("16", "slots between two averages of the weights"), kWarmup, kDrift, kLocalState};
  static constexpr ComponentInfo kInfo{
      .id = "local_sgd",
      .summary = "replicas train alone; weights are averaged every few slots",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "plain gradient descent averages weights as it averages gradients",
       .options = "interval = 1",
       .other = "type = 'ddp'",
       .given = "optimizer.type = 'sgd'\noptimizer.lr = 0.02\nprecision.type = 'fp64'\nrun.clip = 0",
       .within = 1e-9},
      {.why = "a warm-up that does not end is data-parallel training",
       .options = "warmup = 1000000000",
       .other = "type = 'ddp'"},
      {.why = "without averages replicas train alone",
       .options = "interval = 1000000000",
       .other = "type = 'none'"},
  };
  explicit LocalSgd(const Options& options) : LocalSgd("local_sgd", options) {}

 protected:
  std::span<const Identity> identities() const override { return kIdentities; }
  LocalSgd(const char* name, const Options& options) : Rounds(name, options) { read_local_state(options); }
  void sync_round() override { average_weights(); }
};

class PostLocalSgd final : public LocalSgd {
 public:
  static constexpr OptionSpec kOptions[] = {
      interval_option("16", "slots between two averages of the weights"),
      option::integer("warmup", nullptr)
          .mandatory()
          .at_least(1)
          .in_unit("slots")
          .doc_text(
              "slots of data-parallel training first; published: until the first drop of the learning rate"),
      kDrift, kLocalState};
  static constexpr ComponentInfo kInfo{
      .id = "post_local_sgd", .summary = "distributed data parallel, then local SGD", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "a warm-up that does not end is data-parallel training",
       .options = "warmup = 1000000000",
       .other = "type = 'ddp'"},
      {.why = "it is local_sgd with a warm-up",
       .options = "interval = 2\nwarmup = 3",
       .other = "type = 'local_sgd'\ninterval = 2\nwarmup = 3"},
  };
  explicit PostLocalSgd(const Options& options) : LocalSgd("post_local_sgd", options) {}

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

}  // namespace tenon::sync_local

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sync_local",
                               .version = "0.1.0",
                               .summary = "replicas that train alone and synchronise every few slots"},
             tenon::sync_local::LocalSgd, tenon::sync_local::PostLocalSgd, tenon::sync_local::Diloco,
             tenon::sync_local::Palsgd, tenon::sync_local::Bmuf, tenon::sync_local::Easgd)
