// Messages about devices: the device that "auto" takes with its reason, and the doctor's report of one that
// is absent and of one whose claims do not hold.
#include "run_program.hpp"

#include "run/device_choice.hpp"

#include <tenon/config.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

namespace tenon::train {
namespace {

using integration::Ended;
using integration::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A device with this preference and usable count, and a reason if none is usable.
template <int Preference, int Usable, MemorySpace Space = MemorySpace::kHost>
class Fake : public Device, public DeviceAvailability {
 public:
  explicit Fake(const Options&) {}
  int preference() const override { return Preference; }
  int usable() const override { return Usable; }
  std::string_view reason() const override { return Usable == 0 ? "its driver is too old" : ""; }
  void open(const DeviceSpec&) override {}
  MemorySpace space() const override { return Space; }
  void* allocate(std::size_t) override { return nullptr; }
  void release(void*, std::size_t) noexcept override {}
  void copy(TensorView, TensorView) override {}
  void synchronize() override {}
  std::string_view kernel_choice() const override { return ""; }
  std::string_view features() const override { return ""; }
  void* query(std::string_view id) override {
    return id == DeviceAvailability::kId ? static_cast<DeviceAvailability*>(this) : nullptr;
  }
};
struct Plain final : Fake<1, 8> {
  static constexpr ComponentInfo kInfo{.id = "plain", .summary = "always there"};
  using Fake::Fake;
};
struct Fast final : Fake<100, 2> {
  static constexpr ComponentInfo kInfo{.id = "fast", .summary = "there"};
  using Fake::Fake;
};
struct Faster final : Fake<200, 0> {
  static constexpr ComponentInfo kInfo{.id = "faster", .summary = "not there"};
  using Fake::Fake;
};
struct Named final : Fake<0, 8> {
  static constexpr ComponentInfo kInfo{.id = "named", .summary = "by name only"};
  using Fake::Fake;
};

struct Card final : Fake<300, 1, MemorySpace::kCuda> {
  static constexpr ComponentInfo kInfo{.id = "card", .summary = "has memory of its own"};
  using Fake::Fake;
};
struct HostRule final : OptimizerBase {
  static constexpr OptionSpec kOptions[] = {option::real("lr", "0.1")};
  static constexpr ComponentInfo kInfo{
      .id = "host_rule", .summary = "reads host memory", .options = kOptions, .capabilities = TENON_CAP_HOST};
  using OptimizerBase::OptimizerBase;
  void step(const UpdateContext&, const ParameterSlice&) override {}
};

#define TENON_FAKE_PLUGIN(name, Component)                                                            \
  TENON_STATIC_PLUGIN(name, PluginInfo{.id = "test." #name, .version = "1.0.0", .summary = "a fake"}, \
                      Component)
TENON_FAKE_PLUGIN(plain, Plain)
TENON_FAKE_PLUGIN(fast, Fast)
TENON_FAKE_PLUGIN(faster, Faster)
TENON_FAKE_PLUGIN(named, Named)
TENON_FAKE_PLUGIN(card, Card)
TENON_FAKE_PLUGIN(host_rule, HostRule)

DeviceChoice choose(std::initializer_list<const tenon_plugin_v1_t*> plugins, const std::string& type) {
  Registry registry;
  for (const tenon_plugin_v1_t* plugin : plugins) registry.add_builtin(*plugin);
  return choose_device(Config::parse("[device]\ntype = \"" + type + "\"\nthreads = 3\n", "test", {}),
                       registry);
}

TEST(DeviceChoice, TakesThePreferredOneThatCanBeUsed) {
  const DeviceChoice chosen = choose({&plain, &faster, &fast, &named}, "auto");
  EXPECT_EQ(chosen.config.find("device.type")->text(), "fast");
  EXPECT_EQ(chosen.config.find("device.threads")->integer(), 3);
  EXPECT_THAT(chosen.why,
              AllOf(HasSubstr("took 'fast'"), HasSubstr("'faster': its driver is too old"),
                    HasSubstr("'named': it is taken by name only"), HasSubstr("'plain': less preferred")));
  EXPECT_EQ(choose({&plain, &faster}, "auto").config.find("device.type")->text(), "plain");
}

TEST(DeviceChoice, PassesOverMemoryThatAComponentCannotReach) {
  Registry registry;
  registry.discover({});
  for (const tenon_plugin_v1_t* plugin : {&plain, &card, &host_rule}) registry.add_builtin(*plugin);
  const auto choose = [&](const std::string& optimizer) {
    return choose_device(
        Config::parse(
            "run = {steps = 1}\ndevice = {type = 'auto'}\ndata = {type = 'synthetic_ctr', batch = 4}\n"
            "model = {type = 'logistic_regression'}\noptimizer = {" +
                optimizer + "}\n",
            "test", {}),
        registry);
  };
  EXPECT_EQ(choose("type = 'sgd', lr = 0.1").config.find("device.type")->text(), "card");
  for (const char* optimizer :
       {"type = 'host_rule'", "type = 'muon', lr = 0.1, inner = {type = 'host_rule'}"}) {
    const DeviceChoice chosen = choose(optimizer);
    EXPECT_EQ(chosen.config.find("device.type")->text(), "cpu") << chosen.why;
    EXPECT_THAT(chosen.why, HasSubstr("'card': optimizer.host_rule works in host memory alone")) << optimizer;
  }
}

TEST(DeviceChoice, LeavesANameAlone) {
  const DeviceChoice chosen = choose({&plain, &named}, "named");
  EXPECT_EQ(chosen.config.find("device.type")->text(), "named");
  EXPECT_EQ(chosen.why, "");
}

TEST(DeviceChoice, SaysWhyThereIsNone) {
  try {
    choose({&faster, &named}, "auto");
    FAIL() << "something was chosen";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("no device can be used here"), HasSubstr("its driver is too old")));
  }
}

TEST(DeviceChoice, StandsInLogAndManifest) {
  const Scratch scratch;
  const Ended ended = scratch.train({"--set", "device.type=auto"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(scratch.log(), HasSubstr("device.type = \"auto\" took 'cpu'"));
  EXPECT_THAT(integration::read_file(scratch / "runs/tiny/latest/manifest.json"),
              HasSubstr("\"device_choice\""));
  EXPECT_THAT(integration::read_file(scratch / "runs/tiny/latest/config.resolved.toml"),
              HasSubstr("type = \"cpu\""));
}

Ended doctor(const std::string& device, const std::string& more = "") {
  const Scratch scratch;
  const std::string file =
      std::string(TENON_BINARY_DIR) + "/tests/device_fixtures/test_device_" + device + ".so";
  std::vector<std::string> words{"doctor"};
  if (!more.empty()) words.push_back(more);
  return scratch.run(words, {{"TENON_PLUGIN_PATH", file}});
}

TEST(Doctor, AbsentHardwareIsNoFailure) {
  const Ended ended = doctor("absent");
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out,
              HasSubstr("off        test.device_absent 1.0.0\n           no such card is in this machine\n"
                        "           driver: none\n"));
  EXPECT_THAT(doctor("absent", "--json").out,
              AllOf(HasSubstr("\"usable\": false"), HasSubstr("\"driver\": \"none\"")));
}

TEST(Doctor, AClaimThatDoesNotHoldIsOne) {
  const Ended ended = doctor("boasting");
  EXPECT_EQ(ended.status, 3);
  EXPECT_THAT(ended.out, HasSubstr("FAILED: counting: 1 + 1 is 3, and on the host 2"));
}

TEST(Doctor, NamesTheSensorsOfPowerSources) {
  const Ended ended = doctor("sensors");
  EXPECT_EQ(ended.status, 0) << "an absent sensor is no failure" << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("ok         test.sensors 1.0.0 (5 components)\n"
                                   "           absent: no meter hangs on this machine\n"
                                   "           sensor: a guess (modelled share)\n"
                                   "           sensor: a meter of the tests (measured watts)\n"));
  EXPECT_THAT(ended.out, Not(HasSubstr("needy")));
  const std::string json = doctor("sensors", "--json").out;
  EXPECT_THAT(json, AllOf(HasSubstr("\"component\": \"power.absent\""), HasSubstr("\"present\": false"),
                          HasSubstr("\"reason\": \"no meter hangs on this machine\""),
                          HasSubstr("\"sensor\": \"a meter of the tests\""), HasSubstr("\"rated\": 230.5"),
                          HasSubstr("\"origin\": \"modelled\""), HasSubstr("\"unit\": \"share\"")));
}

TEST(Doctor, TriesTheOperatorsOfTheDevicesThatItFinds) {
  const Ended ended = doctor("absent");
  EXPECT_THAT(ended.out, AllOf(HasSubstr("products of f32, native"), HasSubstr("maps of bf16"),
                               Not(HasSubstr("FAILED"))));
}

}  // namespace
}  // namespace tenon::train
