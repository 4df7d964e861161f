// A signal that arrives while some ranks are past a save and others before it: all must take part in the same
// messages, and stop at the slot that they agreed on.
#include "support.hpp"

#include <signal.h>

#include <chrono>
#include <thread>

namespace rehearsal::stop_during_save_test {
namespace {

using namespace tenon;

/// On rank 0 alone: lets the other rank pass the boundary after slot 2, requests the stop, and only then
/// reaches the boundary.
class Late final : public Observer {
 public:
  static constexpr ComponentInfo kInfo{.id = "late", .summary = "asks to stop between two saves of one slot"};
  explicit Late(const Options&) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord& record) override {
    if (record.slot != 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view) override { return nullptr; }
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.late", .version = "1.0.0", .summary = "late"}, Late)

TEST(StopDuringSave, IsTakenAtTheAgreedSlotByAllRanks) {
  const Folder folder;
  Runtime runtime;
  runtime.add_plugin(support_plugin);
  runtime.add_plugin(probe_plugin);
  runtime.add_plugin(plugin);
  runtime.discover({});
  TrainRequest request;
  request.run_dir = folder.path + "/run";
  request.quiet = true;
  request.handle_signals = true;
  const RunResult result = runtime.train(
      Config::parse(
          std::string(kBase) + kTwoReplicas +
              "[sync]\ntype = 'none'\n[recovery]\ntype = 'full'\nevery = 3\n[[observe]]\ntype = 'late'\n",
          "rehearsal.toml", {"run.deadline=5"}),
      request);
  EXPECT_EQ(result.status, "interrupted") << result.error;
  EXPECT_EQ(result.error, "");
  EXPECT_GE(result.steps, 3);
  EXPECT_LT(result.steps, 12);
}

}  // namespace
}  // namespace rehearsal::stop_during_save_test
