// `tenon conformance` as its user sees it: output, refusals and exit statuses. sdk/conformance/tests shows
// that the checks catch broken components.
#include "run_program.hpp"

#include <nlohmann/json.hpp>
#include <regex>

namespace tenon::integration::conformance_test {
namespace {

using ::testing::HasSubstr;

std::string sgd() {
  return std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins/tenon_optimizer_sgd.so";
}
std::string broken() {
  return std::string(TENON_BINARY_DIR) + "/sdk/conformance/broken_any.so";
}

std::string without_times(const std::string& text) {
  return std::regex_replace(text, std::regex(" +[0-9]+\\.[0-9]+ s"), "");
}

TEST(Conformance, PrintsOneLineForEachCheckAndASummary) {
  const Scratch scratch;
  const Ended ended = scratch.run({"conformance", sgd(), "--filter", "component.is_*"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(without_times(scratch.plain(ended.out)),
            "{build}/lib/tenon/plugins/tenon_optimizer_sgd.so (tenon.sgd 0.1.0), 2 checks, seed 1\n"
            "optimizer.sgd\n"
            "  ok       component.is_documented\n"
            "  ok       component.is_made_again\n"
            "2 checks: 2 ok, 0 failed, 0 not applicable, 0 left out;\n");
}

TEST(Conformance, SaysWhatWasFoundWhatWasPromisedAndHowToSeeItAgain) {
  const Scratch scratch;
  const Ended ended = scratch.run({"conformance", broken(), "--component", "schedule.undocumented",
                                   "--filter", "component.is_documented"});
  EXPECT_EQ(ended.status, 3) << ended.err;
  EXPECT_EQ(without_times(scratch.plain(ended.out)),
            "{build}/sdk/conformance/broken_any.so (broken.any 1.0.0), 1 check, seed 1\n"
            "schedule.undocumented\n"
            "  FAIL     component.is_documented\n"
            "           options without a text that says what they mean: factor. Use doc_text().\n"
            "           promised: every option says what it means\n"
            "           again:    tenon conformance {build}/sdk/conformance/broken_any.so --component "
            "schedule.undocumented --filter component.is_documented --seed 1\n"
            "1 check: 0 ok, 1 failed, 0 not applicable, 0 left out;\n");
}

TEST(Conformance, KillsWhatNeverEnds) {
  const Scratch scratch;
  const Ended ended = scratch.run({"conformance", broken(), "--component", "schedule.sleeps_for_ever",
                                   "--filter", "component.is_made_again", "--time-limit", "1"});
  EXPECT_EQ(ended.status, 3) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("it did not end within 1 s, it was killed."));
}

TEST(Conformance, LeavesOutWhatIsSuppressedAndSaysWhy) {
  const Scratch scratch;
  write_file(scratch / "cases.toml",
             "[[suppress]]\ncheck = 'component.is_doc*'\ncomponent = 'optimizer.sgd'\n"
             "reason = 'texts come later'\n");
  const Ended ended =
      scratch.run({"conformance", sgd(), "--cases", "cases.toml", "--filter", "component.is_*", "--json"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  const nlohmann::json report = nlohmann::json::parse(ended.out);
  EXPECT_EQ(report["plugin"], "tenon.sgd");
  EXPECT_EQ(report["failed"], 0);
  ASSERT_EQ(report["checks"].size(), 2u);
  EXPECT_EQ(report["checks"][0]["outcome"], "suppressed");
  EXPECT_EQ(report["checks"][0]["text"], "texts come later");
  EXPECT_EQ(report["checks"][1]["outcome"], "passed");
}

TEST(Conformance, ListsChecksWithTheirPromises) {
  const Scratch scratch;
  const Ended ended = scratch.run({"conformance", sgd(), "--list", "--filter", "plugin.loads"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out,
            "the file\n"
            "  plugin.loads                         the file is a plugin for this program; init and shutdown "
            "succeed\n");
}

/// The outcomes of `--json` by check.
std::map<std::string, nlohmann::json> by_check(const Ended& ended) {
  std::map<std::string, nlohmann::json> checks;
  const nlohmann::json report = nlohmann::json::parse(ended.out);
  for (const auto& check : report["checks"]) checks[check["check"]] = check;
  return checks;
}

TEST(Conformance, ReportsACauseOnce) {
  const Scratch scratch;
  const Ended needs = scratch.run(
      {"conformance", broken(), "--component", "schedule.random", "--filter", "run.re*", "--json"});
  EXPECT_EQ(needs.status, 3) << needs.err;
  auto checks = by_check(needs);
  EXPECT_EQ(checks["run.repeats"]["outcome"], "failed");
  EXPECT_EQ(checks["run.resumes"]["outcome"], "cannot tell");
  EXPECT_EQ(checks["run.resumes"]["text"], "cannot tell: it needs run.repeats, which failed");
  write_file(scratch / "cases.toml",
             "[[case]]\ncomponent = 'optimizer.sgd'\nset = ['schedule.type=absent']\n");
  const Ended same = scratch.run({"conformance", sgd(), "--cases", "cases.toml", "--filter", "run.repeats",
                                  "--filter", "run.completes", "--filter", "run.allocates_nothing"});
  EXPECT_EQ(same.status, 3) << same.err;
  EXPECT_THAT(same.out, HasSubstr("there is no schedule.absent."));
  EXPECT_THAT(same.out, HasSubstr("Searched: this plugin, [conformance] plugins of the case file"));
  EXPECT_THAT(same.out, Not(HasSubstr("tenon_optimizer_adamw.so")));
  EXPECT_THAT(same.out,
              HasSubstr("3 checks: 0 ok, 1 failed, 0 not applicable, 0 left out, 2 that cannot tell;"));
}

TEST(Conformance, TakesARefusalOfMemoryOrFormatAsNotApplicable) {
  const Scratch scratch;
  const std::vector<std::string> words{"conformance", broken(), "--component", "optimizer.host_only",
                                       "--json"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more);
    return scratch.run(all);
  };
  const Ended formats = with({"--filter", "optimizer.keeps_f64", "--filter", "optimizer.moves_downhill"});
  EXPECT_EQ(formats.status, 0) << formats.out;
  auto checks = by_check(formats);
  EXPECT_EQ(checks["optimizer.keeps_f64"]["outcome"], "not applicable");
  EXPECT_THAT(checks["optimizer.keeps_f64"]["text"].get<std::string>(), HasSubstr("the weights are not f32"));
  EXPECT_EQ(checks["optimizer.moves_downhill"]["outcome"], "passed");
  const Ended memory = with(
      {"--device", "cuda_emulated", "--filter", "optimizer.moves_downhill", "--filter", "run.completes"});
  EXPECT_EQ(memory.status, 0) << memory.out;
  checks = by_check(memory);
  for (const char* name : {"optimizer.moves_downhill", "run.completes"}) {
    EXPECT_EQ(checks[name]["outcome"], "not applicable") << name;
    EXPECT_THAT(checks[name]["text"].get<std::string>(), HasSubstr("the weights are not in host memory"))
        << name;
  }
}

TEST(Conformance, FindsOtherPlugins) {
  const Scratch scratch;
  const std::string one_case = "[[case]]\ncomponent = 'optimizer.sgd'\nset = ['schedule.type=remembers']\n";
  std::filesystem::create_directories(scratch / "sgd");
  std::filesystem::create_directories(scratch / "inner/build/release");
  std::filesystem::copy_file(broken(), scratch / "inner/build/release/inner.so");
  write_file(
      scratch / "sgd/conformance.toml",
      read_file(std::string(TENON_SOURCE_DIR) + "/sdk/conformance/tests/other_plugins.toml") + one_case);
  const Ended named =
      scratch.run({"conformance", sgd(), "--cases", "sgd/conformance.toml", "--filter", "run.completes"});
  EXPECT_EQ(named.status, 0) << named.out;
  write_file(scratch / "cases.toml", one_case);
  const std::vector<std::string> words{"conformance", sgd(),      "--cases",
                                       "cases.toml",  "--filter", "run.completes"};
  const Ended path = scratch.run(words, {{"TENON_PLUGIN_PATH", broken()}});
  EXPECT_EQ(path.status, 0) << path.out;
  EXPECT_EQ(scratch.run(words).status, 3);
}

struct Refusal {
  const char* name;
  std::vector<std::string> words;
  const char* cases;  ///< contents of cases.toml, null for none
  int status;
  const char* error;
};

void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.name;
}

class ConformanceRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(ConformanceRefusal, IsSaidWhole) {
  const Scratch scratch;
  std::vector<std::string> words{"conformance"};
  for (const std::string& word : GetParam().words) words.push_back(word == "SGD" ? sgd() : word);
  if (GetParam().cases != nullptr) {
    write_file(scratch / "cases.toml", GetParam().cases);
    words.insert(words.end(), {"--cases", "cases.toml"});
  }
  const Ended ended = scratch.run(words);
  EXPECT_EQ(ended.status, GetParam().status);
  EXPECT_EQ(scratch.plain(ended.err), GetParam().error);
}

const Refusal kRefusals[] = {
    {"no_file",
     {},
     nullptr,
     2,
     "tenon: tenon conformance: which FILE.so? usage: tenon conformance FILE.so\n"},
    {"absent",
     {"absent.so"},
     nullptr,
     3,
     "tenon: Cannot load '{dir}/absent.so': the file cannot be read: No such file or directory. No plugin "
     "code was run.\n"},
    {"no_plugin",
     {"text.txt"},
     nullptr,
     3,
     "tenon: Cannot load '{dir}/text.txt': it is not an ELF file. No plugin code was run.\n"},
    {"no_component",
     {"SGD", "--component", "optimizer.sdg"},
     nullptr,
     2,
     "tenon: the plugin offers no optimizer.sdg. It offers:\n  optimizer.sgd\n"},
    {"nothing_left",
     {"SGD", "--filter", "layer.*"},
     nullptr,
     2,
     "tenon: no check is left by --component, --filter and --exclude; see --list\n"},
    {"time_limit",
     {"SGD", "--time-limit", "soon"},
     nullptr,
     2,
     "tenon: --time-limit: expected a number above 0, found 'soon'\n"},
    {"case_of_another",
     {"SGD"},
     "[[case]]\ncomponent = 'optimizer.adamw'\n",
     2,
     "tenon: {dir}/cases.toml: a case is for optimizer.adamw, which plugin tenon.sgd does not offer\n"},
    {"misspelt_key",
     {"SGD"},
     "[[case]]\ncomponent = 'optimizer.sgd'\noption = {lr = 1.0}\n",
     2,
     "tenon: {dir}/cases.toml:3:1: [[case]] has no option 'option'; did you mean 'options'? (see: "
     "docs/plugins/testing.md)\n"},
    {"suppresses_nothing",
     {"SGD"},
     "[[suppress]]\ncheck = 'layer.*'\nreason = 'none here'\n",
     2,
     "tenon: {dir}/cases.toml: no check is left out by check = \"layer.*\"; remove it, or see `tenon "
     "conformance FILE "
     "--list`\n"},
    {"absent_plugin",
     {"SGD"},
     "[conformance]\nplugins = ['absent.so']\n",
     2,
     "tenon: {dir}/cases.toml:1:1: plugins names '{dir}/absent.so', which does not exist; expected a plugin "
     "file or a "
     "folder of them\n"},
    {"no_reason",
     {"SGD"},
     "[[suppress]]\ncheck = 'run.*'\nreason = ''\n",
     2,
     "tenon: {dir}/cases.toml:1:1: a suppression needs a reason\n"},
};

INSTANTIATE_TEST_SUITE_P(All, ConformanceRefusal, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tenon::integration::conformance_test
