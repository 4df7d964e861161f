// Every integer option of every shipped component, and of the core, set to absurd numbers: 9e17, and the
// largest that its own rules allow. A run with it is built or refused with a message within seconds, and in
// little memory.
#include "run_program.hpp"

#include "config/run_schema.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/model.hpp>
#include <tenon/registry.hpp>
#include <tenon/runtime.hpp>

#include <cmath>
#include <cstring>
#include <iostream>

namespace tenon::integration::sizes_test {
namespace {

constexpr std::int64_t kHuge = 900000000000000000;
constexpr rlim_t kMemory = rlim_t{4} << 30, kSeconds = 20;
constexpr std::uint64_t kUnlikelyBound = std::uint64_t{1}
                                         << 20;  ///< smaller bounds are sizes in practical use

struct Base {
  std::string name, text;
};

/// A component of a base, in its table, with what goes with it.
struct Place {
  const Base* base;
  std::string table, kind, type;
  std::vector<std::string> sets;
};

struct Case {
  std::string name;
  const Base* base;
  std::vector<std::string> sets;
};

class Sizes : public ::testing::Test {
 protected:
  Sizes() { runtime_.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"}); }

  std::vector<Base> bases() const {
    const std::string head =
        "[run]\nname = \"sizes\"\nsteps = 1\nmax_samples = 4\neval_batches = 1\n[device]\ntype = "
        "\"cpu\"\nthreads = 1\n";
    const std::string sgd = "[optimizer]\ntype = \"sgd\"\nlr = 0.01\n";
    return {
        {"text", replaced(replaced(replaced(Scratch::kRun, "text.txt", (scratch_ / "text.txt").string()),
                                   "steps = 6", "steps = 1\nmax_samples = 4\neval_batches = 1"),
                          "keep = 2\n", "")},
        {"clicks",
         head + sgd +
             "[data]\ntype = \"synthetic_ctr\"\ntables = 3\nrows = [20]\nsamples = 100\nval_samples = 20\n"
             "batch = 4\n[model]\ntype = \"dlrm\"\nbottom = [8, 4]\ntop = [4, 1]\n"},
        {"images", head + sgd + "[data]\ntype = \"mnist\"\nbatch = 4\n[model]\ntype = \"lenet5\"\n"},
        {"deep", head + sgd + "[data]\ntype = \"mnist\"\nbatch = 4\n[model]\ntype = \"resnet\"\nwidth = 4\n"},
        {"flat", head + sgd + "[data]\ntype = \"mnist\"\nbatch = 4\n[model]\ntype = \"mlp\"\nhidden = [8]\n"},
    };
  }

  /// Components of the base, and for kinds that work with any model every component there is.
  std::vector<Place> places(const std::vector<Base>& bases) {
    std::vector<Place> found;
    for (const Base& base : bases) {
      const Config config = Config::parse(base.text, base.name, {});
      for (const char* table : {"device", "data", "model"}) {
        const std::string kind = std::string(table) == "data" ? "dataset/1" : std::string(table) + "/1";
        found.push_back({&base, table, kind, config.find(std::string(table) + ".type")->text(), {}});
      }
    }
    const Base* text = &bases.front();
    for (const char* kind :
         {"precision/1", "optimizer/1", "schedule/1", "sync/1", "recovery/1", "observer/1"}) {
      const std::string table = std::string(kind).substr(0, std::string(kind).find('/'));
      for (const std::string& type : runtime_.registry().ids(kind)) {
        const bool observer = table == "observer";
        Place place{text, observer ? "observe[0]" : table, kind, type, {}};
        place.sets.push_back(observer ? "observe=[{type=\"" + type + "\"}]"
                                      : table + ".type=\"" + type + "\"");
        if (table == "sync" && type != "none")
          place.sets.insert(place.sets.end(), {"parallel.ranks=2", "transport.type=\"thread\""});
        found.push_back(std::move(place));
      }
    }
    return found;
  }

  static void add(std::vector<Case>& cases, const Place& place, const tenon_option_v1& option) {
    const bool list = option.type == TENON_OPTION_INT_LIST;
    if (option.type != TENON_OPTION_INT && !list) return;
    std::vector<std::int64_t> values{kHuge};
    // This many micro-batches make a slot that takes years, as requested.
    const bool lasts = std::string_view(option.name) == "accumulate";
    if (!lasts && option.max >= static_cast<double>(kUnlikelyBound) &&
        option.max < static_cast<double>(kHuge))
      values.push_back(static_cast<std::int64_t>(option.max));
    for (const std::int64_t value : values) {
      const std::string number = std::to_string(value), written = list ? "[" + number + "]" : number;
      Case made{place.base->name + " " + place.type + " " + place.table + "." + option.name + "=" + written,
                place.base, place.sets};
      made.sets.push_back(place.table + "." + option.name + "=" + written);
      cases.push_back(std::move(made));
    }
  }

  std::vector<Case> cases(const std::vector<Base>& bases) {
    std::vector<Case> found;
    for (const Place& place : places(bases)) {
      for (const tenon_option_v1* option : runtime_.registry().describe(place.kind, place.type).options)
        add(found, place, *option);
    }
    for (const char* table : {"run", "device", "parallel"}) {
      for (const OptionSpec& option : config::core_specs(table)) {
        if (std::string_view(option.name) == "max_samples") continue;  // it ends the run
        add(found, {&bases.front(), table, "", "core", {"transport.type=\"thread\"", "sync.type=\"ddp\""}},
            option);
      }
    }
    return found;
  }

  /// Runs in a child with little memory and time, so that a mistake does not affect this machine; returns its
  /// status and output.
  Ended build_and_train(const Case& made) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit memory{kMemory, kMemory}, seconds{kSeconds, kSeconds};
      ::setrlimit(RLIMIT_AS, &memory);
      ::setrlimit(RLIMIT_CPU, &seconds);
      ::alarm(static_cast<unsigned>(4 * kSeconds));
      std::string said;
      int status = 0;
      try {
        const Config config = Config::parse(made.base->text, made.base->name + ".toml", made.sets);
        runtime_.check(config, nullptr);
        TrainRequest request;
        request.run_dir = (scratch_ / ("run" + std::to_string(::getpid()))).string();
        request.quiet = true;
        const RunResult result = runtime_.train(config, request);
        status = result.exit_status;
        said = result.error;
      } catch (const Error& error) {
        status = error.exit_status();
        said = error.what();
      } catch (const std::exception& error) {
        status = 99;
        said = error.what();
      }
      [[maybe_unused]] const auto written =
          ::write(ends[1], said.data(), std::min<std::size_t>(said.size(), 4000));
      ::_exit(status);
    }
    ::close(ends[1]);
    Ended ended;
    char piece[4096];
    for (ssize_t got = 0; (got = ::read(ends[0], piece, sizeof piece)) > 0;) ended.err.append(piece, got);
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ended.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return ended;
  }

  Scratch scratch_;
  Runtime runtime_;
};

TEST_F(Sizes, OfEveryIntegerOptionAreTakenOrRefusedInWords) {
  const std::vector<Base> all = bases();
  const std::vector<Case> list = cases(all);
  ASSERT_GT(list.size(), 150U);
  for (const Base& base : all) {
    const Ended plain = build_and_train({base.name, &base, {}});
    EXPECT_EQ(plain.status, 0) << base.name << ": " << plain.err;
  }
  std::size_t refused = 0;
  for (const Case& made : list) {
    const Ended ended = build_and_train(made);
    EXPECT_TRUE(ended.status == 0 || (ended.status == 2 && !ended.err.empty()))
        << made.name << ": status " << ended.status << ", signal " << ended.signal << " "
        << strsignal(ended.signal) << "\n"
        << ended.err;
    refused += ended.status == 2 ? 1 : 0;
  }
  std::cout << list.size() << " runs, " << refused << " of them refused\n";
  EXPECT_GT(refused, list.size() / 4);
}

/// The refusal of a graph names the number, the memory that it would take, and the memory that there is.
TEST_F(Sizes, OfGraphsAreComparedWithTheMachine) {
  const std::vector<Base> all = bases();
  const auto said = [&](std::size_t base, const std::string& set) {
    const Ended ended =
        build_and_train({set, &all[base], {set, "transport.type=\"thread\"", "sync.type=\"ddp\""}});
    EXPECT_EQ(ended.status, 2) << set << ": " << ended.err;
    return ended.err;
  };
  using ::testing::ContainsRegex;
  EXPECT_THAT(
      said(0, "model.layers=900000000000000000"),
      ContainsRegex("--set model.layers=900000000000000000: .*expected a whole number from 1 to 10000"));
  EXPECT_THAT(
      said(4, "model.hidden=[2147483647]"),
      ContainsRegex(
          "model node '.*' \\(linear; features = 2147483647\\): .*GiB.* may use [0-9.]+ GiB of this"));
  EXPECT_THAT(said(4, "model.hidden=[2147483647, 2147483647, 2147483647]"), ContainsRegex("GiB"));
  EXPECT_THAT(said(0, "parallel.ranks=1000000"),
              ContainsRegex("1000000 ranks .* take at least 14[0-9.]+ GiB, and"));
}

/// A model that writes nodes without end is stopped: for every model, the core owns the list of nodes.
TEST(NodeLists, StopGrowingBeforeTheyTakeTheMemory) {
  GraphSpec graph;
  try {
    while (graph.nodes.size() <= std::size_t{1} << 18) graph.nodes.push_back({"n", "relu", {"x"}, {}});
    ADD_FAILURE() << "it grew on";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(),
                ::testing::ContainsRegex("the model wrote more than 262144 nodes; .* takes more than "
                                         "2.00 GiB, and this process may use [0-9.]+ [GM]iB"));
  }
  EXPECT_EQ(graph.nodes.size(), std::size_t{1} << 18);
}

}  // namespace
}  // namespace tenon::integration::sizes_test
