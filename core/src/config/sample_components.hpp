// For tests: a catalog of invented components that between them use every option type, and a run that names
// them.
#pragma once

#include <tenon/config.hpp>

#include "config/words.hpp"

#include <map>

TENON_ABI_BEGIN
namespace config::sample {

using namespace option;

inline constexpr const char* kRoundings[] = {"nearest", "stochastic", nullptr};
inline constexpr const char* kOldBetas[] = {"beta", nullptr};

inline constexpr OptionSpec kCpu[] = {boolean("huge_pages", "false")};
inline constexpr OptionSpec kThread[] = {integer("slots", "8").at_least(1)};
inline constexpr OptionSpec kText[] = {path("path", nullptr).mandatory().doc_text("the text file"),
                                       integer("context", "128").at_least(1),
                                       integer("batch", "16").at_least(1), text("token", nullptr)};
inline constexpr OptionSpec kMlp[] = {integers("widths", "[32, 32]").between(1, 65536),
                                      real("dropout", "0").between(0, 1)};
inline constexpr OptionSpec kLinear[] = {integer("width", nullptr).mandatory().at_least(1),
                                         boolean("bias", "true")};
inline constexpr OptionSpec kFp8Site[] = {text("fprop", nullptr), text("dgrad", nullptr)};
inline constexpr OptionSpec kFp8[] = {text("rounding", "\"nearest\"").one_of(kRoundings),
                                      integer("keep_last", "0").at_least(0), texts("keep", "[]"),
                                      sections<kFp8Site>("site")};
inline constexpr OptionSpec kAdapt[] = {real("lr", "1e-3").at_least(0).in_unit("per step"),
                                        reals("betas", "[0.9, 0.999]").between(0, 1).formerly(kOldBetas),
                                        real("weight_decay", "0.01").at_least(0),
                                        real("eps", "1e-8").at_least(0)};
inline constexpr OptionSpec kSgd[] = {real("lr", "0.1").at_least(0), real("momentum", "0").between(0, 1)};
inline constexpr OptionSpec kWsd[] = {real("decay_fraction", "0.2").between(0, 1),
                                      integer("warmup", "0").at_least(0)};
inline constexpr OptionSpec kMean[] = {real("bucket_mib", "25").at_least(0).in_unit("MiB")};
inline constexpr OptionSpec kWarmup[] = {integer("steps", "100").at_least(0), component("inner", "sync/1"),
                                         component("outer", "optimizer/1")};
inline constexpr OptionSpec kStack[] = {components("part", "sync/1").mandatory(), reals("shares", "[]")};
inline constexpr OptionSpec kFull[] = {integer("every", "100").at_least(1), integer("keep", "2").at_least(1)};
inline constexpr OptionSpec kMemory[] = {integer("pages", "1").at_least(1)};
inline constexpr OptionSpec kBoard[] = {real("flush_seconds", "5").at_least(0).in_unit("s")};

class Catalog final : public ComponentCatalog {
 public:
  ComponentSchema describe(std::string_view kind, std::string_view type) const override {
    static constexpr struct {
      std::string_view kind, id;
      std::span<const OptionSpec> specs;
    } kAll[] = {{"device/1", "cpu", kCpu},
                {"transport/1", "thread", kThread},
                {"dataset/1", "text", kText},
                {"model/1", "mlp", kMlp},
                {"layer/1", "linear", kLinear},
                {"precision/1", "fp8", kFp8},
                {"optimizer/1", "adapt", kAdapt},
                {"optimizer/1", "sgd", kSgd},
                {"schedule/1", "wsd", kWsd},
                {"sync/1", "mean", kMean},
                {"sync/1", "warmup", kWarmup},
                {"sync/1", "stack", kStack},
                {"recovery/1", "full", kFull},
                {"tier/1", "memory", kMemory},
                {"observer/1", "tensorboard", kBoard}};
    std::vector<std::string> ids;
    for (const auto& entry : kAll) {
      if (entry.kind != kind) continue;
      if (entry.id == type) {
        return {std::string(kind_name(kind)) + "." + std::string(type), option_list(entry.specs)};
      }
      ids.emplace_back(entry.id);
    }
    fail_config("no component '" + std::string(type) + "'" + suggestion(type, ids));
  }
};
inline const Catalog kCatalog;

inline constexpr std::string_view kRun = R"(
[run]
name = "sample"
seed = 7
steps = 400
eval_every = 50
clip = 1

[device]
type = "cpu"
threads = 2

[parallel]
ranks = 4
grid = [1, 2]

[transport]
type = "thread"
[transport.link]
bandwidth = 1.25e8
latency = 1e-4
[transport.clock]
type = "simulated"
compute_seconds = 0.01

[data]
type = "text"
path = "core/src/config/sample_components.hpp"
context = 64

[model]
type = "mlp"
widths = [8, 8]
[[model.insert]]
after = "block.0"
name = "extra"
type = "linear"
width = 4

[precision]
type = "fp8"
rounding = "stochastic"
keep_last = 1

[optimizer]
type = "adapt"
lr = 1e-3
betas = [0.9, 0.95]

[schedule]
type = "wsd"
warmup = 10

[sync]
type = "warmup"
buffers = "local"
steps = 20
[sync.inner]
type = "mean"
bucket_mib = 1
[sync.outer]
type = "sgd"
momentum = 0.9

[recovery]
type = "full"
every = 100

[[observe]]
type = "tensorboard"
flush_seconds = 1

[[fault]]
rank = 2
step = 30
kind = "crash"
)";

}  // namespace config::sample
TENON_ABI_END
