// Markup helpers; see html.hpp. At the end the style sheet of the report: light and dark, phone to paper,
// colours of Okabe and Ito (distinct to colour-blind readers) brightened for dark pages.
#include "ab/html.hpp"

#include "ab/ab.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace tenon::ab {

std::string table(const std::vector<TableColumn>& columns, const std::vector<TableRow>& rows,
                  std::string_view css_class) {
  std::string out = fmt::format("<div class=\"scroll {}\"><table><thead><tr>", css_class);
  for (const TableColumn& c : columns) {
    out += fmt::format("<th scope=\"col\"{}>{}</th>", c.is_number ? " class=\"num\"" : "", c.head);
  }
  out += "</tr></thead><tbody>\n";
  for (const TableRow& row : rows) {
    out += row.strong ? "<tr class=\"strong\">" : "<tr>";
    for (std::size_t i = 0; i < row.cells_html.size(); ++i) {
      const char* css_class = columns[i].is_number ? " class=\"num\"" : "";
      out += i == 0 ? fmt::format("<th scope=\"row\"{}>{}</th>", css_class, row.cells_html[i])
                    : fmt::format("<td{}>{}</td>", css_class, row.cells_html[i]);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string csv_link(std::string_view file_name, std::string_view label) {
  return fmt::format("<a class=\"csv\" download href=\"csv/{}\">{}</a>", escape_html(file_name),
                     escape_html(label));
}

std::string drawing(ChartSize wide, ChartSize narrow, const std::function<std::string(ChartSize)>& draw) {
  return fmt::format("<div class=\"wide\">{}</div><div class=\"narrow\">{}</div>\n", draw(wide),
                     draw(narrow));
}

std::string share_drawings(std::string_view html) {
  constexpr std::string_view kBegin = "<svg x=\"", kEnd = "</svg>";
  std::map<std::string_view, std::size_t> first;  // part -> where it was first
  std::map<std::size_t, std::size_t> ids;         // where -> its id, of parts that come again
  struct Repeated {
    std::size_t at, length, of;
  };
  std::vector<Repeated> repeated;
  for (std::size_t at = 0; (at = html.find(kBegin, at)) != std::string_view::npos;) {
    const std::size_t length = html.find(kEnd, at) + kEnd.size() - at;
    const auto [found, is_new] = first.try_emplace(html.substr(at, length), at);
    if (!is_new) {
      ids.try_emplace(found->second, ids.size());
      repeated.push_back({at, length, found->second});
    }
    at += length;
  }
  std::map<std::size_t, std::pair<std::size_t, std::string>>
      edits;  // where -> bytes that go, text that comes
  for (const auto& [at, id] : ids) edits[at] = {kBegin.size(), fmt::format("<svg id=\"drawn{}\" x=\"", id)};
  for (const Repeated& r : repeated)
    edits[r.at] = {r.length, fmt::format("<use href=\"#drawn{}\"/>", ids.at(r.of))};
  std::string out;
  std::size_t copied = 0;
  for (const auto& [at, edit] : edits) {
    out += html.substr(copied, at - copied);
    out += edit.second;
    copied = at + edit.first;
  }
  return out + std::string(html.substr(copied));
}

std::string tabs(std::string_view group, const std::vector<Panel>& panels) {
  std::string out = "<div class=\"tabs\">\n";
  for (std::size_t i = 0; i < panels.size(); ++i) {
    out += fmt::format(
        "<input type=\"radio\" name=\"{0}\" id=\"{0}-{1}\"{2}><label for=\"{0}-{1}\">{3}</label>\n", group, i,
        i == 0 ? " checked" : "", escape_html(panels[i].label));
  }
  for (const Panel& p : panels) {
    out += fmt::format("<div class=\"panel\"><p class=\"panel-name\">against {}</p>{}</div>\n",
                       escape_html(p.label), p.content_html);
  }
  return out + "</div>\n";
}

std::string arm_key(std::size_t arm, std::string_view name) {
  Svg mark(14, 14, "key", "");
  mark.marker(marker_of(arm), {7, 7}, 4.5, fmt::format("dot arm{}", arm % 6), "");
  return fmt::format("<span class=\"arm\">{}{}</span>", mark.take(), escape_html(name));
}

std::string legend(std::string_view keys_html) {
  return fmt::format("<div class=\"legend\">{}</div>\n", keys_html);
}

std::string page(std::string_view title, std::string_view body_html) {
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n", escape_html(title),
                     kReportStyle);
  out += body_html;
  return out + "</main>\n</body>\n</html>\n";
}

std::string fact(std::string_view name, std::string_view value_html) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_html(name), value_html);
}

std::string section(std::string_view title, std::string_view content_html) {
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", escape_html(title), content_html);
}

std::string paragraph(std::string_view text, std::string_view css_class) {
  if (css_class.empty()) return fmt::format("<p>{}</p>\n", escape_html(text));
  return fmt::format("<p class=\"{}\">{}</p>\n", css_class, escape_html(text));
}

const char* const kReportStyle = R"css(
:root{color-scheme:light dark;
--page:#fff;--ink:#1c2126;--soft:#5a646e;--rule:#dfe3e7;--grid:#eceff2;--panel:#f6f7f9;--link:#0b62a8;
--arm0:#0072b2;--arm1:#d55e00;--arm2:#00805f;--arm3:#b5487f;--arm4:#8a6d00;--arm5:#4a4f9c;
--good:#00734f;--bad:#b5430a;--same:#0b62a8;--open:#5a646e}
@media (prefers-color-scheme:dark){:root{
--page:#14171a;--ink:#e4e7ea;--soft:#9ba5af;--rule:#2f363d;--grid:#23292f;--panel:#1b2025;--link:#7cc0f5;
--arm0:#56b4e9;--arm1:#ff9248;--arm2:#3ccf9f;--arm3:#ec9cc8;--arm4:#e6c229;--arm5:#a9adff;
--good:#3ccf9f;--bad:#ff9248;--same:#7cc0f5;--open:#9ba5af}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif}
main{max-width:56rem;margin:0 auto;padding:2.5rem 1.5rem 4rem}
h1{font-size:1.75rem;line-height:1.25;font-weight:650;margin:.25rem 0 1.25rem;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:1.15rem;font-weight:650;margin:0 0 .75rem}
h3{font-size:1rem;font-weight:600;margin:1.5rem 0 .5rem}
section{border-top:1px solid var(--rule);margin-top:2.5rem;padding-top:1.5rem}
p{margin:0 0 .75rem;max-width:44rem;overflow-wrap:anywhere}
ul{margin:0 0 .75rem;padding-left:1.25rem;max-width:44rem}
li{margin:.2rem 0;overflow-wrap:anywhere}
a{color:var(--link)}
code,pre{font:.875em/1.5 ui-monospace,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace}
pre{background:var(--panel);border:1px solid var(--rule);border-radius:6px;padding:.75rem 1rem;overflow-x:auto;margin:0 0 .75rem}
.eyebrow,.note{color:var(--soft);font-size:.875rem}
.eyebrow{margin:0}
.verdict{border-left:4px solid var(--tone);padding:.1rem 0 .1rem 1.1rem;margin:0 0 1.75rem}
.verdict .word{color:var(--tone);font-weight:650;font-size:.875rem;margin:0 0 .25rem}
.verdict .headline{font-size:1.2rem;line-height:1.4;margin:0 0 .5rem}
.verdict ul{color:var(--soft);font-size:.9375rem;margin-bottom:0}
.better{--tone:var(--good)}.worse{--tone:var(--bad)}.equivalent,.identical{--tone:var(--same)}
.inconclusive,.undecided{--tone:var(--open)}.none{--tone:var(--bad)}
dl.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:.9rem 1.75rem;margin:0}
dl.facts div{min-width:0}
dt{color:var(--soft);font-size:.8125rem}
dd{margin:.05rem 0 0;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.scroll{overflow-x:auto;margin:0 0 1rem}
.list{max-width:32rem}
table{border-collapse:collapse;font-size:.9375rem;min-width:100%}
th,td{text-align:left;padding:.4rem .9rem .4rem 0;border-bottom:1px solid var(--rule);vertical-align:top;font-weight:400}
th:last-child,td:last-child{padding-right:0}
thead th{color:var(--soft);font-size:.8125rem;vertical-align:bottom}
.num{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
tr.strong th,tr.strong td{font-weight:600}
td code,th code{overflow-wrap:normal;white-space:nowrap}
.absent{color:var(--soft);font-style:italic;font-size:.875em}
.arm{white-space:nowrap}
svg.key{width:14px;height:14px;vertical-align:-2px;margin-right:.35rem}
.legend .arm{white-space:normal;overflow-wrap:anywhere}
.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;font-size:.875rem;margin:0 0 .4rem;color:var(--ink)}
.two{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,3fr);gap:1.75rem;align-items:start}
.even{grid-template-columns:repeat(2,minmax(0,1fr))}
.two h3{margin-top:.5rem}
figure{margin:0 0 1.25rem}
figcaption{color:var(--soft);font-size:.875rem;max-width:44rem;margin-top:.35rem}
svg.chart{display:block;width:100%;height:auto}
.narrow{display:none}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,17rem),1fr));gap:0 1.5rem}
figure.small{margin:0 0 1rem;min-width:0}
figure.small figcaption{margin:0;overflow-wrap:anywhere;color:var(--ink)}
svg text{fill:var(--soft);font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif;font-variant-numeric:tabular-nums}
svg .label{fill:var(--ink)}
svg .grid{stroke:var(--grid)}
svg .axis{stroke:var(--rule)}
svg .zero{stroke:var(--soft)}
svg .target{stroke:var(--soft);stroke-dasharray:5 4}
svg .margin{fill:var(--soft);opacity:.09}
svg .margin-edge{stroke:var(--soft);stroke-dasharray:2 3}
svg .pair{fill:none;stroke:var(--soft);stroke-opacity:.45}
svg .arm0{--c:var(--arm0)}svg .arm1{--c:var(--arm1)}svg .arm2{--c:var(--arm2)}
svg .arm3{--c:var(--arm3)}svg .arm4{--c:var(--arm4)}svg .arm5{--c:var(--arm5)}
svg .dot{fill:var(--c);stroke:var(--page);stroke-width:1}
svg .faint{fill:var(--c);fill-opacity:.5}
svg .open{fill:var(--page);stroke:var(--c);stroke-width:1.5}
svg .trace{fill:none;stroke:var(--c);stroke-opacity:.3;stroke-width:1}
svg .whisker{fill:none;stroke:var(--c);stroke-width:1.5;stroke-opacity:.75}
svg .curve{fill:none;stroke:var(--c);stroke-width:2.2;stroke-linejoin:round}
svg .band{fill:var(--c);fill-opacity:.18}
svg .mark{stroke:var(--c);stroke-width:1.6}
svg .interval{stroke:var(--ink);stroke-width:1.8}
svg .mean-mark{fill:var(--ink)}
svg .area{fill:var(--c)}
svg .half{fill-opacity:.55}
svg .rest{--c:var(--grid)}
svg .heat{fill:var(--arm1)}
svg .h0{fill-opacity:0.04}svg .h1{fill-opacity:0.11}svg .h2{fill-opacity:0.17}svg .h3{fill-opacity:0.24}svg .h4{fill-opacity:0.30}svg .h5{fill-opacity:0.37}svg .h6{fill-opacity:0.44}svg .h7{fill-opacity:0.50}svg .h8{fill-opacity:0.57}svg .h9{fill-opacity:0.63}svg .h10{fill-opacity:0.70}
.tabs input{position:absolute;opacity:0;pointer-events:none}
.tabs label{display:inline-block;padding:.2rem .7rem;margin:0 .3rem .6rem 0;border:1px solid var(--rule);border-radius:999px;font-size:.875rem;color:var(--soft);cursor:pointer}
.tabs input:checked+label{color:var(--page);background:var(--ink);border-color:var(--ink)}
.tabs input:focus-visible+label{outline:2px solid var(--link);outline-offset:2px}
.panel{display:none}.panel-name{display:none}
.tabs input:nth-of-type(1):checked~.panel:nth-of-type(1),.tabs input:nth-of-type(2):checked~.panel:nth-of-type(2),
.tabs input:nth-of-type(3):checked~.panel:nth-of-type(3),.tabs input:nth-of-type(4):checked~.panel:nth-of-type(4),
.tabs input:nth-of-type(5):checked~.panel:nth-of-type(5){display:block}
.csv{font-size:.8125rem;margin-right:1rem}
details{margin:0 0 .75rem}
summary{cursor:pointer;color:var(--link);margin-bottom:.5rem}
footer{color:var(--soft);font-size:.8125rem;border-top:1px solid var(--rule);margin-top:2.5rem;padding-top:1rem}
@media (max-width:40rem){
main{padding:1.5rem 1rem 3rem}
h1{font-size:1.4rem}
.verdict .headline{font-size:1.08rem}
.two,.even{grid-template-columns:minmax(0,1fr);gap:.5rem}
.wide{display:none}.narrow{display:block}
dl.facts{grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.8rem 1rem}
}
@media print{
:root{--page:#fff;--ink:#000;--soft:#444;--rule:#bbb;--grid:#ddd}
.panel{display:block!important}.panel-name{display:block;color:var(--soft);margin:.5rem 0 0}
.tabs input,.tabs label,.csv{display:none}
figure,tr{break-inside:avoid}
}
)css";

}  // namespace tenon::ab
