// A step in its steady state does not allocate: every call of malloc and its kin on any thread is counted
// between two slots and attributed to the library that made it. Calls by oneDNN and OpenMP are counted
// separately and must not grow.
#include "run_program.hpp"
#include "test_paths.hpp"

#include <tenon/config.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/runtime.hpp>

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <atomic>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

constexpr int kFrames = 24;
constexpr int kMost = 1 << 14;

struct Call {
  std::array<void*, kFrames> frames{};
  int depth = 0;
  int window = 0;
  bool by_opener = false;  ///< made by the thread that opens and closes the windows
};

std::atomic<int> window{0};  ///< 0: not counting
std::atomic<int> calls_made{0};
std::array<Call, kMost> calls;
thread_local bool inside = false;
thread_local bool opens_windows = false;

void note() {
  const int now = window.load(std::memory_order_relaxed);
  if (now == 0 || inside) return;
  inside = true;
  const int index = calls_made.fetch_add(1);
  if (index < kMost) {
    Call& call = calls[index];
    call.depth = ::backtrace(call.frames.data(), kFrames);
    call.window = now;
    call.by_opener = opens_windows;
  }
  inside = false;
}

}  // namespace

// operator new ends in malloc, so these see it too.
extern "C" {
void* malloc(std::size_t size) {
  note();
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  note();
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  note();
  return __libc_realloc(memory, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  note();
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? 12 : 0;
}
}

namespace tenon::integration::allocation_test {
namespace {

/// Opens and closes the windows: slots [30, 50) are the first, [50, 70) the second.
class Windows final : public Observer {
 public:
  static constexpr ComponentInfo kInfo{.id = "windows", .summary = "tells which slots are counted"};
  explicit Windows(const Options&) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord& record) override {
    opens_windows = true;
    if (record.slot == 29) window = 1;
    if (record.slot == 49) window = 2;
    if (record.slot == 69) window = 0;
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override { window = 0; }
  void* query(std::string_view) override { return nullptr; }
};

TENON_STATIC_PLUGIN(windows_plugin,
                    PluginInfo{.id = "test.windows", .version = "1.0.0", .summary = "windows of slots"},
                    Windows)

/// Origin of a call: the first file that is neither the C nor the C++ library nor this test's malloc.
std::string place(const Call& call) {
  Dl_info self{};
  ::dladdr(reinterpret_cast<void*>(&note), &self);
  for (int i = 0; i < call.depth; ++i) {
    Dl_info info{};
    if (::dladdr(call.frames[i], &info) == 0) continue;
    const std::string file = fs::path(info.dli_fname).filename().string();
    if (info.dli_fbase == self.dli_fbase || file.starts_with("libstdc++") || file.starts_with("libc."))
      continue;
    return file;
  }
  return "unknown";
}

bool is_foreign(const std::string& file) {
  return file.starts_with("libdnnl") || file.starts_with("libgomp");
}

std::string stack(const Call& call) {
  std::string text;
  char** names = ::backtrace_symbols(call.frames.data(), call.depth);
  for (int i = 0; i < call.depth; ++i) text += std::string("\n    ") + names[i];
  std::free(names);
  return text;
}

struct World {
  const char* name;
  std::vector<std::string> sets;
  int ranks = 1;
  bool tables = false;  ///< a DLRM instead of a GPT
};

void PrintTo(const World& world, std::ostream* out) {
  *out << world.name;
}

World two_ranks(const char* name, std::vector<std::string> sets) {
  sets.insert(sets.end(), {"parallel.ranks=2", "transport.type=thread"});
  return {name, std::move(sets), 2};
}

class SteadyStep : public ::testing::TestWithParam<World> {};

TEST_P(SteadyStep, AllocatesNothing) {
  const Scratch scratch;
  std::vector<std::string> sets{"run.steps=80", "run.log_every=1", "run.clip=1.0", "recovery.every=1000"};
  if (GetParam().tables) {
    sets.emplace_back("run.eval_every=0");
  } else {
    sets.push_back("data.path=" + (scratch / "text.txt").string());
  }
  sets.insert(sets.end(), GetParam().sets.begin(), GetParam().sets.end());
  Runtime runtime;
  runtime.add_plugin(windows_plugin);
  runtime.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
  const Config config = Config::parse(
      (GetParam().tables ? clicks_run() : Scratch::kRun) + "\n[[observe]]\ntype = \"windows\"\n", "run.toml",
      sets);
  TrainRequest request;
  request.run_dir = (scratch / "run").string();
  request.quiet = true;

  std::array<void*, 4> warm_up;  // the first backtrace of a process loads a library
  ::backtrace(warm_up.data(), 4);
  calls_made = 0;
  const RunResult result = runtime.train(config, request);
  ASSERT_EQ(result.error, "");
  ASSERT_EQ(result.steps, 80);

  const int made = calls_made.load();
  ASSERT_LE(made, kMost);
  int own = 0;
  // Only the rank that opens the windows has the same slots in each of them: others are ahead of it or lag.
  const bool everywhere = GetParam().ranks == 1;
  std::array<int, 3> foreign{};
  for (int i = 0; i < made; ++i) {
    const Call& call = calls[i];
    if (is_foreign(place(call))) {
      if (everywhere || call.by_opener) ++foreign[call.window];
    } else if (++own <= 3) {
      ADD_FAILURE() << "allocation in " << place(call) << stack(call);
    }
  }
  EXPECT_EQ(own, 0) << "in 40 slots";
  EXPECT_LE(foreign[2], foreign[1]) << "allocations inside oneDNN and OpenMP grow";
  std::cout << GetParam().name << ": " << own << " by Tenon in 40 slots, " << foreign[1] / 20.0
            << " by oneDNN and OpenMP in a slot\n";
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, SteadyStep,
    ::testing::Values(
        World{"fp32", {"precision.type=fp32"}}, World{"bf16", {"precision.type=bf16"}},
        World{"micro_batches", {"run.accumulate=2"}}, World{"our_kernels", {"device.kernels=portable"}},
        World{"adagrad", {"optimizer.type=adagrad"}},
        World{"rowwise_adagrad", {"optimizer.type=rowwise_adagrad"}}, World{"lamb", {"optimizer.type=lamb"}},
        World{"muon", {"optimizer.type=muon", "optimizer.inner.type=adamw", "device.kernels=portable"}},
        World{"ddp_of_2_ranks", {"parallel.ranks=2", "transport.type=thread", "sync.type=ddp"}, 2},
        two_ranks("ddp_in_bf16", {"sync.type=ddp", "sync.communication=bf16", "sync.bucket_mb=0.01"}),
        two_ranks("diloco", {"sync.type=diloco", "sync.interval=3"}),
        two_ranks("streaming_diloco", {"sync.type=streaming_diloco", "sync.interval=5", "sync.fragments=2"}),
        two_ranks("streaming_in_fp4", {"sync.type=streaming_diloco", "sync.interval=5", "sync.fragments=2",
                                       "sync.alpha=0.5", "sync.communication=fp4"}),
        two_ranks("powersgd", {"sync.type=powersgd", "sync.inner.type=ddp", "sync.start_after=5",
                               "sync.min_compression=1.0", "device.kernels=portable"}),
        two_ranks("sign", {"sync.type=sign", "sync.inner.type=ddp", "sync.start_after=5"}),
        World{"tables", {}, 1, true}, World{"tables_micro_batches", {"run.accumulate=2"}, 1, true},
        World{"tables_sgd", {"optimizer.type=sgd"}, 1, true},
        World{"tables_adamw", {"optimizer.type=adamw"}, 1, true},
        World{"tables_adagrad", {"optimizer.type=adagrad"}, 1, true},
        World{"tables_on_2_ranks", {"parallel.ranks=2", "model.placement=rows"}, 2, true},
        World{"copies_on_2_ranks", {"parallel.ranks=2", "model.placement=replicated"}, 2, true}),
    [](const auto& info) { return std::string(info.param.name); });

// The test of this test: an allocation in a window is seen and is not attributed to oneDNN.
TEST(Counting, SeesAnAllocation) {
  std::array<void*, 4> warm_up;
  ::backtrace(warm_up.data(), 4);
  calls_made = 0;
  window = 1;
  std::free(std::malloc(100));
  const std::string text(100, 'x');
  window = 0;
  EXPECT_EQ(calls_made.load(), 2);
  EXPECT_FALSE(is_foreign(place(calls[0])));
}

}  // namespace
}  // namespace tenon::integration::allocation_test
