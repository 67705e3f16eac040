/** The element of an id; the page has it, or its markup and its script are out of step. */
export function by<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element as T;
}

/** An element with text, which is never read as markup: names come out of other people's files. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  text = "",
  set: Partial<HTMLElementTagNameMap[K]> = {},
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  return Object.assign(element, set);
}

/** A table's content. A cell that begins with a number stands to the right. */
export function fillTable(table: HTMLTableElement, head: string[], rows: string[][], chosen = -1): void {
  const figure = /^[–<]?\s*[\d.,]+/;
  const numeric = head.map((_, at) => rows.length > 0 && rows.every((row) => row[at] === "–" || figure.test(row[at] ?? "")));
  const line = (cells: string[], tag: "th" | "td") => {
    const row = make("tr");
    cells.forEach((text, at) => {
      const cell = make(tag, text);
      if (numeric[at]) cell.classList.add("n");
      else if (text.length > 36) cell.classList.add("wide");
      if (tag === "th") cell.setAttribute("scope", "col");
      row.append(cell);
    });
    return row;
  };
  const top = make("thead");
  top.append(line(head, "th"));
  const body = make("tbody");
  rows.forEach((row, at) => {
    const made = line(row, "td");
    if (at === chosen) made.classList.add("chosen");
    body.append(made);
  });
  table.replaceChildren(top, body);
}

/** Gives a file to the user. */
export function save(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  make("a", "", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
