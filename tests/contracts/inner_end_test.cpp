// Rehearses strategies within strategies that hold memory of the device: each ends before what is within it,
// and all of them before the replica and the device that they release it to.
#include "support.hpp"

#include <tenon/sync.hpp>

#include <mutex>

namespace rehearsal::inner_end_test {
namespace {

using namespace tenon;

/// The order in which strategies of all replicas ended.
class EndLog {
 public:
  void add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> of(int replica) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> found;
    for (const std::string& line : lines_) {
      if (line.ends_with(" " + std::to_string(replica))) found.push_back(line);
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
} ends;

/// Memory of a replica's device, allocated in start() and released at the end.
struct Held {
  void take(Replica& from) {
    replica = &from;
    memory = from.device().allocate(kBytes);
  }
  void give_back(const std::string& who) {
    if (replica == nullptr) return;
    replica->device().release(memory, kBytes);
    ends.add(who + " of " + std::to_string(replica->replica()));
  }
  static constexpr std::size_t kBytes = 4096;
  Replica* replica = nullptr;
  void* memory = nullptr;
};

class Holder final : public SyncBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "holder", .summary = "holds memory"};
  explicit Holder(const Options&) {}
  ~Holder() override { held_.give_back("innermost"); }
  void start(Replica& replica) override {
    SyncBase::start(replica);
    held_.take(replica);
  }

 private:
  Held held_;
};

class Wrapper final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory(),
                                            option::text("name", nullptr).mandatory()};
  static constexpr ComponentInfo kInfo{
      .id = "wrapper", .summary = "holds memory around another strategy", .options = kOptions};
  explicit Wrapper(const Options& options)
      : SyncDecorator(options.component<Sync>("inner")), name_(options.text("name")) {}
  ~Wrapper() override { held_.give_back(name_); }
  void start(Replica& replica) override {
    SyncDecorator::start(replica);
    held_.take(replica);
  }

 private:
  std::string name_;
  Held held_;
};

TENON_STATIC_PLUGIN(plugin,
                    PluginInfo{.id = "rehearsal.inner", .version = "1.0.0", .summary = "who ends when"},
                    Holder, Wrapper)

TEST(InnerComponents, EndAfterTheirClientAndBeforeTheReplica) {
  const Folder folder;
  const std::string toml = std::string(kTwoReplicas) +
                           "[sync]\ntype = 'wrapper'\nname = 'outer'\n"
                           "[sync.inner]\ntype = 'wrapper'\nname = 'middle'\n"
                           "[sync.inner.inner]\ntype = 'holder'\n";
  train(plugin, toml, {"run.steps=2"}, folder);
  for (const int replica : {0, 1}) {
    const std::string of = " of " + std::to_string(replica);
    EXPECT_EQ(ends.of(replica), (std::vector<std::string>{"outer" + of, "middle" + of, "innermost" + of}));
  }
}

}  // namespace
}  // namespace rehearsal::inner_end_test
