// Tables of descriptors that are sound but for one thing.
#include "plugin/descriptor.hpp"

#include <tenon/options.hpp>
#include <tenon/plugin.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <tuple>

namespace tenon::plugin {
namespace {

constexpr const char* kChoices[] = {"up", "down", nullptr};
constexpr const char* kEmpty[] = {nullptr};
constexpr const char* kOld[] = {"rate", nullptr};
constexpr OptionSpec kPlain[] = {option::integer("a", nullptr).at_least(1)};
constexpr OptionSpec kTwice[] = {kPlain[0], kPlain[0]};
constexpr OptionSpec kNested[] = {option::component("a", "sync/1")};
constexpr const tenon_option_v1* kSection[] = {nullptr};

constexpr PortSpec kX = port::input("x", "[..., width]").of("f32 f64"),
                   kY = port::output("y", "[..., width]"), kA = port::input("a", ""),
                   kB = port::input("b", ""), kNone = port::input("", ""),
                   kMany = port::input("many", "").repeated(), kMaybe = port::input("maybe", "").optional();
constexpr const tenon_port_v1* kPorts[] = {&kX, &kY, nullptr};
constexpr const tenon_port_v1* kUnnamed[] = {&kNone, nullptr};
constexpr const tenon_port_v1* kBackwards[] = {&kY, &kX, nullptr};
constexpr const tenon_port_v1* kAfterRepeated[] = {&kMany, &kB, nullptr};
constexpr const tenon_port_v1* kAfterOptional[] = {&kA, &kMaybe, &kB, nullptr};

struct Sound {
  Sound() {
    component = {
        sizeof component, TENON_STABLE,
        "optimizer/1",    "lion",
        nullptr,          "sign momentum",
        options,          1,
        nullptr,          [](const void*, const tenon_host_v1*, tenon_error*) -> void* { return nullptr; },
        [](void*) {},     [](void*, const char*) -> void* { return nullptr; },
        nullptr};
    plugin = {TENON_PLUGIN_ABI_MAGIC,
              sizeof plugin,
              TENON_ABI_EPOCH,
              "tag",
              "acme.lion",
              "1.0.0",
              "Lion",
              "Acme",
              "MIT",
              "",
              nullptr,
              nullptr,
              components,
              nullptr};
  }
  void make_layer(const tenon_port_v1* const* ports) {
    component.kind = "layer/1";
    component.ports = ports;
  }
  OptionSpec lr = option::real("lr", "1e-4").at_least(0);
  OptionSpec mode = option::text("mode", "\"up\"").one_of(kChoices);
  const tenon_option_v1* options[3] = {&lr, &mode, nullptr};
  tenon_component_v1 component;
  const tenon_component_v1* components[3] = {&component, nullptr, nullptr};
  tenon_plugin_v1_t plugin;
};

TEST(Descriptor, SoundOnePasses) {
  const Sound sound;
  EXPECT_EQ(descriptor_problem(sound.plugin), "");
}

TEST(Descriptor, NeedsNameAPluginAndTheLeastVersion) {
  for (const auto& [text, id, least] :
       {std::tuple{"acme.rope >= 0.2", "acme.rope", "0.2"}, std::tuple{"acme.rope>=1", "acme.rope", "1"},
        std::tuple{"acme.rope", "acme.rope", ""}}) {
    const std::optional<Need> need = parse_need(text);
    ASSERT_TRUE(need) << text;
    EXPECT_EQ(need->id, id);
    EXPECT_EQ(need->least, least);
  }
  for (const char* text :
       {"", "rope", "acme.rope >=", "acme.rope >= x", "acme.rope >= 1.", "acme.rope > 1", "acme.rope 1"})
    EXPECT_FALSE(parse_need(text)) << text;
  EXPECT_TRUE(is_version_at_least("0.10.0", "0.9"));
  EXPECT_TRUE(is_version_at_least("1.2.3", "1.2.3"));
  EXPECT_TRUE(is_version_at_least("1.2.3-rc1", "1.2"));
  EXPECT_FALSE(is_version_at_least("0.9.9", "0.10"));
  EXPECT_FALSE(is_version_at_least("1.2.3", "1.2.4"));
}

TEST(Descriptor, Problems) {
  struct Case {
    void (*damage)(Sound&);
    const char* problem;
  };
  const Case cases[] = {
      {[](Sound& s) { s.plugin.magic = 0; }, "magic is 0x0000000000000000, expected 0x54454e4f4e763131"},
      {[](Sound& s) { s.plugin.struct_size = 8; }, "struct_size is 8, expected at least 104"},
      {[](Sound& s) { s.plugin.abi_epoch = 4095; }, "abi_epoch is 4095, expected 0"},
      {[](Sound& s) { s.plugin.abi_tag = nullptr; }, "abi_tag is missing"},
      {[](Sound& s) { s.plugin.id = nullptr; }, "id is missing"},
      {[](Sound& s) { s.plugin.version = ""; }, "version is missing"},
      {[](Sound& s) { s.plugin.summary = ""; }, "summary is missing"},
      {[](Sound& s) { s.plugin.vendor = nullptr; }, "vendor is missing"},
      {[](Sound& s) { s.plugin.licence = ""; }, "licence is missing"},
      {[](Sound& s) { s.plugin.url = nullptr; }, "url is missing; \"\" means none"},
      {[](Sound& s) { s.plugin.summary = "caf\xE9"; }, "summary is not UTF-8"},
      {[](Sound& s) { s.plugin.id = "lion"; },
       "id 'lion' is not of the form 'vendor.name' in lower case, digits, '_' and '-'"},
      {[](Sound& s) { s.plugin.version = "1.0"; }, "version '1.0' is not of the form '1.2.3'"},
      {[](Sound& s) { s.plugin.components = nullptr; }, "it offers no component"},
      {[](Sound& s) { s.components[0] = nullptr; }, "it offers no component"},
      {[](Sound& s) { s.components[1] = &s.component; },
       "component optimizer.lion: the id is declared twice"},
      {[](Sound& s) { s.component.struct_size = 4; }, "a component has struct_size 4, expected at least 96"},
      {[](Sound& s) { s.component.kind = "optimizer"; },
       "component kind 'optimizer' is not of the form 'optimizer/1'"},
      {[](Sound& s) { s.component.kind = "optimizer/0"; },
       "component kind 'optimizer/0' is not of the form 'optimizer/1'"},
      {[](Sound& s) { s.component.kind = nullptr; }, "component kind '' is not of the form 'optimizer/1'"},
      {[](Sound& s) { s.component.id = "Lion"; },
       "component id 'Lion' is not a lower-case letter followed by lower case, digits and '_'"},
      {[](Sound& s) {
         static constexpr const char* kAliases[] = {"lion", nullptr};
         s.component.aliases = kAliases;
       },
       "component optimizer.lion: the alias 'lion' is declared twice"},
      {[](Sound& s) { s.component.maturity = 9; }, "component optimizer.lion: the maturity 9 is unknown"},
      {[](Sound& s) { s.component.summary = ""; }, "component optimizer.lion: summary is missing"},
      {[](Sound& s) { s.component.create = nullptr; }, "component optimizer.lion: create is missing"},
      {[](Sound& s) { s.component.destroy = nullptr; }, "component optimizer.lion: destroy is missing"},
      {[](Sound& s) { s.component.query = nullptr; }, "component optimizer.lion: query is missing"},
      {[](Sound& s) { s.lr.struct_size = 4; },
       "component optimizer.lion: an option has struct_size 4, expected at least 112"},
      {[](Sound& s) { s.lr.name = "learning rate"; },
       "component optimizer.lion: option name 'learning rate' is not a lower-case letter followed by lower "
       "case, digits "
       "and '_'"},
      {[](Sound& s) { s.lr.name = "type"; },
       "component optimizer.lion: option 'type': the name is reserved by the core"},
      {[](Sound& s) { s.mode.name = "lr"; },
       "component optimizer.lion: option 'lr': the name is declared twice"},
      {[](Sound& s) {
         s.lr.old_names = kOld;
         s.mode.old_names = kOld;
       },
       "component optimizer.lion: option 'mode': the old name 'rate' is declared twice"},
      {[](Sound& s) { s.lr.type = 77; }, "component optimizer.lion: option 'lr': the type 77 is unknown"},
      {[](Sound& s) { s.lr.unit = nullptr; },
       "component optimizer.lion: option 'lr': unit is missing; \"\" means none"},
      {[](Sound& s) { s.lr.since = ""; }, "component optimizer.lion: option 'lr': since is missing"},
      {[](Sound& s) { s.lr.max = -1; }, "component optimizer.lion: option 'lr': the range 0 to -1 is empty"},
      {[](Sound& s) { s.mode.min = 0; },
       "component optimizer.lion: option 'mode': only numbers have a range"},
      {[](Sound& s) { s.mode.choices = kEmpty; },
       "component optimizer.lion: option 'mode': choices are a non-empty list, and only texts have them"},
      {[](Sound& s) { s.lr.choices = kChoices; },
       "component optimizer.lion: option 'lr': choices are a non-empty list, and only texts have them"},
      {[](Sound& s) { s.lr.component_kind = "sync/1"; },
       "component optimizer.lion: option 'lr': component_kind goes with the type component, and only with "
       "it"},
      {[](Sound& s) { s.lr = option::component("inner", "sync"); },
       "component optimizer.lion: option 'inner': component_kind 'sync' is not of the form 'sync/1'"},
      {[](Sound& s) { s.lr.flags |= TENON_OPTION_LIST; },
       "component optimizer.lion: option 'lr': the flag of lists goes with the type component, and only with "
       "it"},
      {[](Sound& s) { s.lr.section_options = kSection; },
       "component optimizer.lion: option 'lr': section_options go with the types sections and tables, and "
       "only "
       "with them"},
      {[](Sound& s) { s.lr = option::sections<kNested>("site"); },
       "component optimizer.lion: option 'site': a section holds neither components nor tables"},
      {[](Sound& s) { s.lr = option::tables<kNested>("phase"); },
       "component optimizer.lion: option 'phase': a section holds neither components nor tables"},
      {[](Sound& s) { s.lr.tenon_option_v1::length = 2; },
       "component optimizer.lion: option 'lr': only lists have a length"},
      {[](Sound& s) { s.lr = option::reals("lr", "[1]").length(2); },
       "component optimizer.lion: option 'lr': the default [1] has 1 element(s), and the length is 2"},
      {[](Sound& s) { s.component.ports = kPorts; },
       "component optimizer.lion: port 'x': only layers have inputs and outputs"},
      {[](Sound& s) { s.make_layer(kUnnamed); },
       "component layer.lion: port name '' is not a lower-case letter followed by lower case, digits and "
       "'_'"},
      {[](Sound& s) { s.make_layer(kBackwards); },
       "component layer.lion: port 'x': an input follows an output"},
      {[](Sound& s) { s.make_layer(kAfterRepeated); },
       "component layer.lion: port 'b': it follows a repeated one"},
      {[](Sound& s) { s.make_layer(kAfterOptional); },
       "component layer.lion: port 'b': it follows an optional one and is not optional"},
      {[](Sound& s) { s.lr = option::sections<kTwice>("site"); },
       "component optimizer.lion: option 'site': option 'a': the name is declared twice"},
      {[](Sound& s) { s.lr.flags = TENON_OPTION_REQUIRED; },
       "component optimizer.lion: option 'lr': a required option takes no default"},
      {[](Sound& s) { s.lr.default_toml = "fast"; },
       "component optimizer.lion: option 'lr': the default fast is not a number"},
  };
  for (const Case& c : cases) {
    Sound sound;
    c.damage(sound);
    EXPECT_EQ(descriptor_problem(sound.plugin), c.problem);
  }
}

TEST(OptionDefault, Forms) {
  struct Case {
    OptionSpec spec;
    const char* problem;  // after "the default X "
  };
  const Case cases[] = {
      {option::boolean("a", "true"), ""},
      {option::boolean("a", "True"), "is not true or false"},
      {option::boolean("a", ""), "is not true or false"},
      {option::integer("a", "-1_000"), ""},
      {option::integer("a", "+3"), ""},
      {option::integer("a", "0xFF"), ""},
      {option::integer("a", "0b102"), "is not a whole number"},
      {option::integer("a", "007"), "is not a whole number"},
      {option::integer("a", "1__0"), "is not a whole number"},
      {option::integer("a", "_1"), "is not a whole number"},
      {option::integer("a", "+-1"), "is not a whole number"},
      {option::integer("a", "1.0"), "is not a whole number"},
      {option::integer("a", "9223372036854775808"), "is not a whole number"},
      {option::integer("a", "5").between(0, 4), "is above the maximum 4"},
      {option::integer("a", "-1").at_least(0), "is below the minimum 0"},
      {option::real("a", "1e-3"), ""},
      {option::real("a", "6.02_3E+23"), ""},
      {option::real("a", "1"), ""},
      {option::real("a", "-inf"), ""},
      {option::real("a", "nan"), ""},
      {option::real("a", "nan").at_least(0), "is below the minimum 0"},
      {option::real("a", "1."), "is not a number"},
      {option::real("a", ".5"), "is not a number"},
      {option::real("a", "1.e3"), "is not a number"},
      {option::real("a", "01.5"), "is not a number"},
      {option::real("a", "infinity"), "is not a number"},
      {option::real("a", "1 2"), "is followed by more text"},
      {option::text("a", "\"a \\\"b\\\" \\n\""), ""},
      {option::text("a", "'C:\\raw'"), ""},
      {option::text("a", "bare"), "is not a quoted string"},
      {option::text("a", "\"open"), "is not a quoted string"},
      {option::text("a", "\"bad \\q\""), "is not a quoted string"},
      {option::text("a", "\"sideways\"").one_of(kChoices), "is not among the choices"},
      {option::path("a", "\"data/x.bin\""), ""},
      {option::integers("a", "[1, 2, 3,]"), ""},
      {option::integers("a", "[]"), ""},
      {option::integers("a", "[1 2]"), "is not a list"},
      {option::integers("a", "[1, 2"), "is not a list"},
      {option::integers("a", "1"), "is not a list"},
      {option::integers("a", "[1, x]"), "has an element that is not a whole number"},
      {option::reals("a", "[0.9, 0.999]").between(0, 1), ""},
      {option::reals("a", "[0.9, 1.1]").between(0, 1), "has an element that is above the maximum 1"},
      {option::texts("a", "[\"up\", 'down']").one_of(kChoices), ""},
      {option::texts("a", "[\"up\", \"no\"]").one_of(kChoices),
       "has an element that is not among the choices"},
  };
  for (const Case& c : cases) {
    const std::string expected =
        *c.problem == '\0' ? "" : std::string("the default ") + c.spec.default_toml + " " + c.problem;
    EXPECT_EQ(default_problem(c.spec), expected) << c.spec.default_toml;
  }
}

TEST(OptionDefault, RubbishDoesNoHarm) {
  std::mt19937_64 random(3);
  const std::string_view alphabet = "0123456789_+-.eExob\"'\\[], \ttrufalsin";
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 12, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    OptionSpec spec(static_cast<tenon_option_type>(random() % 12), "a", text.c_str());
    const std::string problem = default_problem(spec);
    EXPECT_TRUE(problem.empty() || problem.rfind("the default ", 0) == 0 ||
                spec.type >= TENON_OPTION_COMPONENT);
  }
}

TEST(Description, PortsAndLengthsComeBackToo) {
  Sound sound;
  sound.make_layer(kPorts);
  sound.lr = option::reals("lr", "[1, 2]").length(2);
  const std::string lines = to_lines(describe(sound.plugin));
  const auto back = from_lines(lines);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->components[0].options[0].length, 2u);
  ASSERT_EQ(back->components[0].ports.size(), 2u);
  EXPECT_EQ(back->components[0].ports[0].dtypes, "f32 f64");
  EXPECT_EQ(back->components[0].ports[1].flags, static_cast<std::uint32_t>(TENON_PORT_OUTPUT));
  EXPECT_EQ(to_lines(*back), lines);
}

TEST(Description, SectionsComeBackToo) {
  Sound sound;
  sound.lr = option::sections<kPlain>("site");
  const std::string lines = to_lines(describe(sound.plugin));
  const auto back = from_lines(lines);
  ASSERT_TRUE(back.has_value());
  const OptionDescription& site = back->components[0].options[0];
  ASSERT_EQ(site.section.size(), 1u);
  EXPECT_EQ(site.section[0].name, "a");
  EXPECT_EQ(site.section[0].min, 1);
  EXPECT_EQ(to_lines(*back), lines);
}

TEST(Description, LinesComeBackAsTheyWere) {
  Sound sound;
  sound.plugin.summary = "tabs\tand\nlines\\n";
  sound.lr.default_toml = nullptr;
  sound.lr.old_names = kOld;
  const std::string lines = to_lines(describe(sound.plugin));
  const auto back = from_lines(lines);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->summary, sound.plugin.summary);
  ASSERT_EQ(back->components.size(), 1u);
  ASSERT_EQ(back->components[0].options.size(), 2u);
  const OptionDescription& lr = back->components[0].options[0];
  EXPECT_FALSE(lr.default_toml.has_value());
  EXPECT_EQ(lr.min, 0);
  EXPECT_TRUE(std::isnan(lr.max));
  EXPECT_EQ(lr.old_names, std::vector<std::string>{"rate"});
  EXPECT_EQ(back->components[0].options[1].choices, (std::vector<std::string>{"up", "down"}));
  EXPECT_EQ(to_lines(*back), lines);

  for (std::size_t length = 0; length < lines.size(); ++length) {
    EXPECT_FALSE(from_lines(std::string_view(lines).substr(0, length)).has_value()) << length;
  }
  std::mt19937_64 random(4);
  for (int round = 0; round < 20000; ++round) {
    std::string text = lines;
    for (int change = 0; change < 2; ++change) text[random() % text.size()] = "\t\n\\0129e"[random() % 8];
    if (const auto read = from_lines(text)) {
      EXPECT_FALSE(read->components.empty());
    }
  }
}

}  // namespace
}  // namespace tenon::plugin
