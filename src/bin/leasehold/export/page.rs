//! The page for people: the leases of a store as a table, with its hazards and servers above. It needs no script: it
//! reloads itself, and its query sorts and filters it. Pure: text in, text out.

use std::time::{Duration, SystemTime};

use leasehold::clock::Instant;
use percent_encoding::{
    AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode,
};

use crate::row::Row;
use crate::seen::{Order, Seen, described, summary};
use crate::table::Column;

/// Interval at which the browser reloads the page. This causes no further requests to the store.
const REFRESH: Duration = Duration::from_secs(5);

/// Maximum number of rows: more would make a browser slow.
const MOST: usize = 1_000;

/// Result of the last scan of the store. Before the first, only the store is known.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub store: String,
    pub leases: Vec<Seen>,
    pub hazards: Vec<String>,
    pub servers: Vec<String>,
    /// Why the store was not scanned.
    pub error: Option<String>,
    /// When it ended. `None` before the first.
    pub scanned_at: Option<Instant>,
}

/// Returns the page for this query.
pub fn html(snapshot: &Snapshot, query: &str, now: Instant, wall_clock: SystemTime) -> String {
    let order = order(query);
    let rows = rows(snapshot, &order, wall_clock);
    let mut body = format!(
        "<h1>leasehold</h1>\n<p class=store>{}</p>\n<p>{}</p>\n",
        escaped(&snapshot.store),
        summary(&snapshot.leases, rows.len(), snapshot.scanned_at, now),
    );
    for (class, lines) in [
        ("bad", snapshot.error.as_slice()),
        ("away", &snapshot.servers),
        ("late", &snapshot.hazards),
    ] {
        for line in lines {
            body.push_str(&format!("<p class={class}>{}</p>\n", escaped(line)));
        }
    }
    body.push_str(&form(&order));
    body.push_str(&table(&rows, &order));
    if rows.len() == MOST {
        body.push_str("<p>More leases than a page can show: filter them.</p>\n");
    }
    format!(
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width\">\n\
         <meta http-equiv=refresh content={}>\n<title>leasehold: {}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\
         <p class=links><a href=/metrics>/metrics</a> <a href=/status>/status</a></p>\n</body>\n</html>\n",
        REFRESH.as_secs(),
        escaped(&snapshot.store),
    )
}

/// Returns the rows that pass the filter, in order, with the time that was left when they were listed: most were
/// renewed since.
fn rows(snapshot: &Snapshot, order: &Order, wall_clock: SystemTime) -> Vec<Row> {
    let scanned_at = snapshot.scanned_at.unwrap_or(Instant::ZERO);
    let rows = order.rows(&snapshot.leases);
    let shown = rows.iter().take(MOST);
    shown
        .map(|row| described(&snapshot.leases, row, scanned_at, wall_clock))
        .collect()
}

fn form(order: &Order) -> String {
    let reverse = match order.is_reversed {
        true => "<input type=hidden name=reverse value=1>",
        false => "",
    };
    format!(
        "<form><input name=filter aria-label=filter placeholder=\"name, holder or label\" value=\"{}\"><input type=hidden name=sort value={}>{reverse}<button>Filter</button></form>\n",
        escaped(&order.filter),
        order.sort.key(),
    )
}

fn table(rows: &[Row], order: &Order) -> String {
    let mut text = "<div class=table><table>\n<tr>".to_owned();
    let filter = encoded(&order.filter);
    for column in Column::ALL {
        let key = column.key();
        // A second click on the same title turns the order round.
        let is_reversed = column == order.sort && !order.is_reversed;
        let reverse = if is_reversed { "&amp;reverse=1" } else { "" };
        text.push_str(&format!(
            "<th class={key}><a href=\"?sort={key}{reverse}&amp;filter={filter}\">{}</a>",
            column.title()
        ));
    }
    text.push('\n');
    for row in rows {
        text.push_str(&format!("<tr class={:?}>", row.tone).to_lowercase());
        for column in Column::ALL {
            let mut cell = escaped(row.cell(column));
            if column == Column::Name && row.is_pool {
                let filter = encoded(row.cell(column));
                cell = format!("<a href=\"?filter={filter}\">{cell}</a>");
            }
            if column == Column::Holder
                && let Some((host, pid)) = cell.rsplit_once(':')
            {
                // Half of a number would look like another process.
                cell = format!("{host}<span class=pid>:{pid}</span>");
            }
            let is_name = column == Column::Name;
            let sign = if is_name { row.tone.sign() } else { "" };
            text.push_str(&format!("<td class={}>{sign} {cell}", column.key()));
        }
        text.push('\n');
    }
    text + "</table></div>\n"
}

/// Reads the requested order; by default the least time left comes first.
fn order(query: &str) -> Order {
    let mut order = Order::by(Column::Left);
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let mut columns = Column::ALL.into_iter();
        match key {
            "sort" => {
                let asked = columns.find(|column| column.key() == value);
                order.sort = asked.unwrap_or(order.sort);
            }
            "reverse" => order.is_reversed = true,
            "filter" => order.filter = decoded(value),
            _ => {}
        }
    }
    order
}

/// Foreign text in HTML: in text, and in quoted attributes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

fn encoded(text: &str) -> PercentEncode<'_> {
    const CODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');
    utf8_percent_encode(text, CODED)
}

fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

/// Light or dark like the reader's system; on a narrow screen only the most important columns.
const STYLE: &str = "\
:root{color-scheme:light dark;--late:#8a5a00;--bad:#b3261e;--calm:#00687a;--away:#7b3fa0;--faint:#666;--line:#8884}
@media(prefers-color-scheme:dark){:root{--late:#e0b050;--bad:#ff8a80;--calm:#6fd3e3;--away:#d0a0f0;--faint:#999}}
body{font:15px/1.5 system-ui,sans-serif;margin:1rem auto;max-width:76rem;padding:0 1rem}
h1{font-size:1.2rem;margin:0}p{margin:.3rem 0;overflow-wrap:anywhere}form{margin:.8rem 0}
input,button{font:inherit;padding:.2rem .5rem}.table{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line);white-space:nowrap}
td.name,td.label{white-space:normal;overflow-wrap:anywhere}.pid{white-space:nowrap}a{color:inherit}
.late{color:var(--late)}.bad{color:var(--bad)}.calm{color:var(--calm)}.away{color:var(--away)}.faint{color:var(--faint)}
th.name,th.label,th.state{color:inherit}@media(max-width:40rem){th,td{padding-right:.5rem}input{width:11rem}td.holder{white-space:normal;overflow-wrap:anywhere}}
@media(max-width:60rem){.token,.progress{display:none}}@media(max-width:40rem){.label,.held,.waiting{display:none}}
";

#[cfg(test)]
mod tests {
    use leasehold::Name;
    use leasehold::store::{Held, HeldState};

    use super::*;
    use crate::seen;

    const SCANNED: Instant = Instant::from_nanos(1_000_000_000);

    fn snapshot() -> Snapshot {
        let held = |name: &str, left: u64, label: &str| {
            let mut held = Held::new(Name::new(name).expect("valid"));
            held.info.host = "vm".into();
            held.info.label = Some(label.into());
            held.remaining = Some(Duration::from_secs(left));
            held
        };
        let mut evicted = held("c", 20, "");
        evicted.state = HeldState::Evicted;
        Snapshot {
            store: "redis://db/0".into(),
            leases: seen::listed(
                vec![
                    held("a", 30, "the <b>report</b>"),
                    held("b\"><script>alert(1)</script>", 10, ""),
                    evicted,
                ],
                &[],
                SCANNED,
            ),
            hazards: vec!["no <i>persistence</i>".into()],
            servers: vec!["down b:6379".into()],
            error: None,
            scanned_at: Some(SCANNED),
        }
    }

    fn page(query: &str) -> String {
        html(
            &snapshot(),
            query,
            Instant::from_nanos(3_000_000_000),
            SystemTime::UNIX_EPOCH,
        )
    }

    /// The first letters of the names, from top to bottom.
    fn names(query: &str) -> String {
        let page = page(query);
        let cells = page.split("<td class=name>").skip(1);
        cells
            .filter_map(|cell| cell.trim_start_matches(['!', ' ']).chars().next())
            .collect()
    }

    #[test]
    fn markup_in_names_labels_and_queries_is_text() {
        let page = page("filter=%22%3E%3Cscript&sort=%22%3E%3Cscript");
        assert!(!page.contains("<script"), "{page}");
        let page = self::page("");
        assert!(
            !page.contains("<script") && page.contains("&lt;script&gt;"),
            "{page}"
        );
        assert!(page.contains("the &lt;b&gt;report&lt;/b&gt;"), "{page}");
        assert!(page.contains("no &lt;i&gt;persistence"), "{page}");
    }

    #[test]
    fn rows_are_sorted_and_filtered_by_the_query() {
        assert_eq!(names(""), "bca");
        assert_eq!(names("sort=name"), "abc");
        assert_eq!(names("sort=name&reverse=1"), "cba");
        assert_eq!(names("filter=REPORT"), "a");
        assert_eq!(names("filter=no+such"), "");
    }

    #[test]
    fn the_page_loads_itself_and_has_hazards_servers_and_links() {
        let page = page("");
        for part in [
            "http-equiv=refresh",
            "down b:6379",
            "href=/metrics",
            "href=/status",
            "30s",
            "evicted",
        ] {
            assert!(page.contains(part), "{part} {page}");
        }
    }

    #[test]
    fn an_order_that_was_turned_round_stays_so_when_the_filter_changes() {
        let reverse = "<input type=hidden name=reverse value=1>";
        assert!(page("sort=name&reverse=1").contains(reverse));
        assert!(!page("sort=name").contains(reverse));
    }

    #[test]
    fn a_store_that_was_not_scanned_has_a_page_that_says_so() {
        let first = Snapshot {
            store: "redis://db/0".into(),
            ..Snapshot::default()
        };
        let page = html(&first, "", SCANNED, SystemTime::UNIX_EPOCH);
        assert!(page.contains("listing ..."), "{page}");
        assert!(page.contains("http-equiv=refresh"), "{page}");
    }

    #[test]
    fn a_late_lease_has_a_word_a_sign_and_a_colour() {
        let mut late = snapshot();
        let mut held = late.leases[0].held.clone();
        held.remaining = Some(Duration::from_secs(9));
        late.leases = seen::listed(vec![held], &late.leases, SCANNED);
        let page = html(&late, "", SCANNED, SystemTime::UNIX_EPOCH);
        for part in [
            "<tr class=late>",
            "<td class=name>! a",
            "<td class=state> late",
        ] {
            assert!(page.contains(part), "{part} {page}");
        }
    }

    #[test]
    fn a_query_is_read_as_it_was_written() {
        for text in ["a b&c=d", "100%", "日本", "%zz"] {
            assert_eq!(decoded(&encoded(text).to_string()), text);
        }
        assert_eq!(decoded("a+b%2"), "a b%2");
    }
}
