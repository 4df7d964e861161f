// `tenon quantize` as a user starts it: files and figures of a format that can be worked out by hand, inputs
// of every type, and every refusal.
#include "run_program.hpp"

#include "store/testing/npy_bytes.hpp"

#include <nlohmann/json.hpp>

#include <cstring>

namespace tenon::integration::quantize_test {
namespace {

using nlohmann::json;
using ::tenon::testing::npy;
using ::tenon::testing::npy_header;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename T>
std::vector<T> elements_of(const std::string& file) {
  const std::size_t begin = file.find('\n') + 1;
  std::vector<T> elements((file.size() - begin) / sizeof(T));
  std::memcpy(elements.data(), file.data() + begin, elements.size() * sizeof(T));
  return elements;
}

template <typename T>
std::string bytes_of(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

/// A tensor of a .safetensors file; tensors are back to back.
struct Tensor {
  std::string name, dtype, shape, bytes;
};
std::string safetensors(const std::vector<Tensor>& tensors) {
  std::string header = "{", data;
  for (const Tensor& tensor : tensors) {
    header += (header.size() > 1 ? "," : "") + ("\"" + tensor.name) + "\":{\"dtype\":\"" + tensor.dtype +
              "\",\"shape\":" + tensor.shape + ",\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + tensor.bytes.size()) + "]}";
    data += tensor.bytes;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

class QuantizeCommand : public ::testing::Test {
 protected:
  Ended quantize(const std::string& file, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"quantize", file});
    for (const auto& [option, value] : {std::pair{"--format", "sevenths"}, {"--out", "out"}}) {
      if (std::find(more.begin(), more.end(), option) == more.end()) more.insert(more.end(), {option, value});
    }
    return scratch_.run(std::move(more), {{"TENON_PLUGIN_PATH", TENON_QUANTIZERS}});
  }
  void write(const std::string& name, const std::string& bytes) const { write_file(scratch_ / name, bytes); }
  std::string read(const std::string& name) const { return read_file(scratch_ / name); }
  /// Standard error of a call that must end with 2 and leave no files.
  std::string refused(const std::string& file, std::vector<std::string> more = {}) const {
    const Ended ended = quantize(file, std::move(more));
    EXPECT_EQ(ended.status, 2) << ended.out << ended.err;
    EXPECT_FALSE(fs::exists(scratch_ / "out")) << file;
    return ended.err;
  }

  const std::vector<float> values_{7, -3, 0, 1, 0, 0, 0, 0, 14, 1, -0.5F};
  const Scratch scratch_;
};

TEST_F(QuantizeCommand, WritesEveryFileOfTheFormat) {
  write("x.npy", npy<float>("<f4", "(1, 11)", values_));
  const Ended ended = quantize("x.npy");
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(read("out/codes.npy"), npy<std::uint8_t>("|u1", "(1, 11)", {15, 5, 8, 9, 8, 8, 8, 8, 15, 8, 8}));
  EXPECT_EQ(read("out/block_scales.npy"), npy<float>("<f4", "(1, 3)", {0.5F, 0, 1}));
  EXPECT_EQ(read("out/tensor_scale.npy"), npy<float>("<f4", "()", {2}));
  EXPECT_EQ(read("out/dequantized.npy"),
            npy<float>("<f4", "(1, 11)", {7, -3, 0, 1, 0, 0, 0, 0, 14, 0, -0.0F}));
  const json stats = json::parse(read("out/stats.json"));
  std::vector<std::string> keys;
  for (const auto& [key, value] : stats.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("amax", "decision", "mean_relative_error", "saturated_fraction", "sqnr_db",
                                "underflow_fraction"));
  EXPECT_EQ(stats["amax"], 14);
  EXPECT_TRUE(stats["sqnr_db"].is_null()) << "an infinite ratio";
  EXPECT_THAT(ended.out, AllOf(HasSubstr("x.npy: f32 [1, 11]\n"), HasSubstr("sevenths (precision.sevenths)"),
                               HasSubstr("no error"), HasSubstr("block_scales 1 x 3 f32")));
}

TEST_F(QuantizeCommand, TheDrawingIsOneFileWithoutNetwork) {
  write("x.npy", npy<float>("<f4", "(1, 11)", values_));
  ASSERT_EQ(quantize("x.npy").status, 0);
  const std::string svg = read("out/histogram.svg");
  EXPECT_THAT(svg, AllOf(HasSubstr("<svg"), HasSubstr("<style>"), HasSubstr("x.npy: sevenths"),
                         HasSubstr("input: zero 45.45 %"), HasSubstr("became: zero 63.64 %"),
                         HasSubstr("7 levels of a block that holds the largest element")));
  for (const char* loading : {"https://", "<script", "href=", "@import", "url("})
    EXPECT_THAT(svg, Not(HasSubstr(loading)));
}

TEST_F(QuantizeCommand, OneDimensionIsARowAndLeadingOnesAreFolded) {
  write("x.npy", npy<float>("<f4", "(11,)", values_));
  EXPECT_THAT(quantize("x.npy").out, HasSubstr("f32 [11] as 1 x 11"));
  write("y.npy", npy<float>("<f4", "(2, 3, 2)", std::vector<float>(12, 1)));
  EXPECT_THAT(quantize("y.npy", {"--out", "y"}).out, HasSubstr("f32 [2, 3, 2] as 6 x 2"));
  EXPECT_THAT(read("y/codes.npy"), HasSubstr("'shape': (6, 2)"));
}

TEST_F(QuantizeCommand, OtherFloatingPointTypesAreConverted) {
  write("d.npy", npy<double>("<f8", "(2,)", {7, 1e300}));
  const Ended wide = quantize("d.npy", {"--out", "d", "--json"});
  ASSERT_EQ(wide.status, 0) << wide.err;
  const json facts = json::parse(wide.out);
  EXPECT_EQ(facts["tensors"][0]["dtype"], "f64");
  EXPECT_EQ(facts["tensors"][0]["non_finite"], 1) << "1e300 has no place in f32";
  write("h.npy", npy<std::uint16_t>("<f2", "(3,)", {0x4700, 0xC200, 0x0001}));
  EXPECT_THAT(quantize("h.npy", {"--out", "h"}).out, HasSubstr("f16 [3] as 1 x 3, as f32"));
  EXPECT_THAT(elements_of<float>(read("h/dequantized.npy")), ElementsAre(7, -3, 0));
}

TEST_F(QuantizeCommand, SafetensorsGiveAFolderEach) {
  write("m.safetensors", safetensors({{"h.0.w", "F32", "[1,4]", bytes_of<float>({7, -3, 0, 1})},
                                      {"../up", "BF16", "[2]", bytes_of<std::uint16_t>({0x40E0, 0xC040})},
                                      {"ids", "I64", "[1]", std::string(8, '\0')},
                                      {"one", "F32", "[]", std::string(4, '\0')},
                                      {"none", "F32", "[0,4]", ""}}));
  const Ended ended = quantize("m.safetensors");
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(elements_of<std::uint8_t>(read("out/h.0.w/codes.npy")), ElementsAre(15, 5, 8, 9));
  EXPECT_THAT(elements_of<float>(read("out/_.._up/dequantized.npy")), ElementsAre(7, -3));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("left out: ids: I64; expected F32, F64, F16 or BF16\n"),
                               HasSubstr("left out: one: a scalar; expected at least one dimension\n"),
                               HasSubstr("left out: none: it is empty, of shape [0, 4]\n")));
  EXPECT_EQ(quantize("m.safetensors", {"--tensor", "h.0.w", "--out", "one"}).status, 0);
  EXPECT_TRUE(fs::exists(scratch_ / "one/codes.npy")) << "a tensor by name needs no folder of its own";
}

TEST_F(QuantizeCommand, ResultsAreReplacedOnlyOnRequest) {
  write("x.npy", npy<float>("<f4", "(1, 4)", {7, -3, 0, 1}));
  ASSERT_EQ(quantize("x.npy").status, 0);
  const auto before = tree(scratch_ / "out");
  write("x.npy", npy<float>("<f4", "(1, 4)", {1, 1, 1, 1}));
  const Ended again = quantize("x.npy");
  EXPECT_EQ(again.status, 2);
  EXPECT_EQ(again.err,
            "tenon: tenon quantize: out/codes.npy exists; choose another --out, or add --overwrite\n");
  EXPECT_EQ(tree(scratch_ / "out"), before);
  EXPECT_EQ(quantize("x.npy", {"--overwrite"}).status, 0);
  EXPECT_THAT(elements_of<std::uint8_t>(read("out/codes.npy")), ElementsAre(15, 15, 15, 15));
}

TEST_F(QuantizeCommand, RefusalsOfOptionsAreWholeMessages) {
  write("x.npy", npy<float>("<f4", "(1, 4)", {7, -3, 0, 1}));
  EXPECT_THAT(
      refused("x.npy", {"--format", "seventh"}),
      HasSubstr("no precision component offers the format 'seventh'; did you mean 'sevenths'?; offered: "));
  EXPECT_EQ(refused("x.npy", {"--transform", "rht16"}),
            "tenon: tenon quantize: 'x.npy', 1 x 4: precision.sevenths: sevenths have no transform; use "
            "--transform none\n");
  EXPECT_EQ(refused("x.npy", {"--block", "1by4"}),
            "tenon: tenon quantize: --block is '1by4', expected rows and columns of a block, such as 1x16 or "
            "128x128\n");
  EXPECT_EQ(refused("x.npy", {"--rounding", "up"}),
            "tenon: tenon quantize: --rounding is 'up', expected rne or sr\n");
  EXPECT_EQ(
      refused("x.npy", {"--tensor", "w"}),
      "tenon: tenon quantize: 'x.npy': --tensor names a tensor of a .safetensors file; a .npy file holds "
      "one\n");
  const Ended misshapen = quantize("x.npy", {"--format", "misshapen"});
  EXPECT_EQ(misshapen.status, 3);
  EXPECT_EQ(
      misshapen.err,
      "tenon: tenon quantize: 'x.npy', 1 x 4: precision.sevenths: precision.sevenths answered a shape of 1 x "
      "1 codes with 0 x 0 scales of u8\n");
  EXPECT_EQ(
      scratch_.run({"quantize", "x.npy"}).err,
      "tenon: tenon quantize: --format is missing; usage: tenon quantize IN.npy|IN.safetensors --format F "
      "--out DIR [options]\n");
}

TEST_F(QuantizeCommand, BadFilesAreRefusedAndLeaveNothing) {
  struct Case {
    const char* name;
    std::string bytes, message;
  };
  const std::string good = npy<float>("<f4", "(1, 4)", {7, -3, 0, 1});
  const std::string types = "expected elements of type <f4, <f8 or <f2, found ";
  const Case cases[] = {
      {"empty.npy", "", "expected a .npy file, found an empty file"},
      {"zero.npy", npy_header("<f4", "(0, 4)"), "found an empty array, of shape (0, 4)"},
      {"int.npy", npy<std::int64_t>("<i8", "(1,)", {1}),
       types + "'<i8'; convert the array, e.g. with array.astype('float32')"},
      {"object.npy", npy_header("|O", "(1,)") + "x",
       types + "'|O'; convert the array, e.g. with array.astype('float32')"},
      {"big.npy", npy_header(">f4", "(1,)") + std::string(4, '\0'),
       types +
           "'>f4'; it is big-endian: write the array again with array.astype(array.dtype.newbyteorder('<'))"},
      {"fortran.npy", npy_header("<f4", "(2, 2)", true) + std::string(16, '\0'),
       "expected C order (rows one after the other), found Fortran order; write the array again with "
       "numpy.save(path, numpy.ascontiguousarray(array))"},
      {"cut.npy", good.substr(0, good.size() - 3),
       "shape (1, 4) of f32: expected 16 bytes after the header, found 13; the file is cut off"},
      {"header.npy", std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\x7F", 12),
       "expected a header of at most 65536 bytes, found 2147483647"},
      {"vast.npy", npy_header("<f4", "(1152921504606846976, 4)"),
       "the shape (1152921504606846976, 4) is larger than any file"},
      {"zip.npy", "PK\x03\x04zip",
       "expected the magic text \\x93NUMPY of a .npy file, found a zip archive, which .npz files are; write "
       "one "
       "array with numpy.save"},
  };
  for (const Case& c : cases) {
    write(c.name, c.bytes);
    EXPECT_EQ(refused(c.name),
              std::string("tenon: tenon quantize: array '") + c.name + "': " + c.message + "\n");
  }
  EXPECT_EQ(refused("absent.npy"),
            "tenon: tenon quantize: array 'absent.npy': cannot open absent.npy: No such file or directory\n");
  write("x.bin", good);
  EXPECT_EQ(refused("x.bin"),
            "tenon: tenon quantize: 'x.bin': expected a file whose name ends in .npy or .safetensors\n");
  write("cut.safetensors", std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F{", 9));
  EXPECT_THAT(refused("cut.safetensors"), HasSubstr("tenon quantize: file 'cut.safetensors'"));
  write("ids.safetensors", safetensors({{"ids", "I64", "[1]", std::string(8, '\0')}}));
  EXPECT_EQ(refused("ids.safetensors"),
            "tenon: tenon quantize: file 'ids.safetensors' has no tensor that can be quantized\n  ids: I64; "
            "expected "
            "F32, F64, F16 or BF16\n");
  EXPECT_EQ(
      refused("ids.safetensors", {"--tensor", "id"}),
      "tenon: tenon quantize: file 'ids.safetensors' has no tensor 'id'; did you mean 'ids'?; it has 1 (see: "
      "tenon quantize without --tensor)\n");
}

}  // namespace
}  // namespace tenon::integration::quantize_test
