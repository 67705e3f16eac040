//! A comparison as a page of its own: no script, nothing that is fetched.

use super::rows::{HEADER, Line};
use super::{Named, about, chart};
use crate::failure::Failure;
use zen_edge_forge::fit::page::escaped;

/// The page.
pub fn html(records: &[Named], lines: &[Line]) -> Result<String, Failure> {
    let mut list = String::new();
    for named in records {
        list.push_str(&format!("<li>{}</li>\n", escaped(&about(named))));
        for warning in &named.record.warnings {
            let message: String = warning.message.chars().take(1000).collect();
            list.push_str(&format!(
                "<li class=\"warning\">{}: {}</li>\n",
                escaped(&named.name),
                escaped(&message)
            ));
        }
    }
    let head: String = HEADER.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    let mut rows = String::new();
    for line in lines {
        let cells: String = line.cells().iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        rows.push_str(&format!("<tr>{cells}</tr>\n"));
    }
    let chart = chart::svg(lines)?;
    Ok(format!(
        "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>Zen Edge: benchmarks compared</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; }}
td, th {{ padding: .2rem .7rem; border-bottom: 1px solid #ccc; text-align: left; }}
td:nth-child(n+4):nth-child(-n+6) {{ text-align: right; font-variant-numeric: tabular-nums; }}
.warning {{ color: #8a4b00; }}
svg {{ max-width: 100%; height: auto; }}
.scroll {{ overflow-x: auto; }}
</style>
<h1>Benchmarks compared</h1>
<ul>
{list}</ul>
<figure>
{chart}</figure>
<div class=\"scroll\"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}</tbody>
</table></div>
</html>
"
    ))
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_no_markup() {
        assert_eq!(super::escaped("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
    }
}
