// Which element of a list draws which row. While a list is dragged by its scroll bar, each frame has other rows: new
// elements for all of them cost the browser more than new texts in the elements that are there.

/** Keys for React: React reuses an element for another row when that row gets the key of a removed one. */
export class RowKeys {
  /** By row, in the order of the document. */
  #keys = new Map<string, number>()
  #next = 0

  /** Keys of `rows`, which stand in the order of the list. When the list has scrolled so far that no row is left, the new rows
   * take the elements of the old ones. When it has not scrolled, a reload has replaced the rows, and an element on which the
   * pointer is down must not become another row. The element of the row `focused` draws no other row, and React does not
   * move it: a browser takes the focus from an element that moves. */
  assign(rows: readonly string[], focused: string | null, isScrolling: boolean): Map<string, number> {
    const before = this.#keys
    const isJump = isScrolling && !rows.some((row) => row !== focused && before.has(row))
    const isHeld = focused !== null && before.has(focused)
    const free: [above: number[], below: number[]] = [[], []]
    let side: 0 | 1 = 0
    for (const [row, key] of before) {
      if (row === focused) side = 1
      else free[side].push(key)
    }
    // Without a focused row all elements are above it.
    side = 0
    this.#keys = new Map(
      rows.map((row) => {
        const own = before.get(row)
        if (row === focused && isHeld) side = 1
        return [row, own ?? (isJump ? free[side].shift() : undefined) ?? this.#next++]
      }),
    )
    return this.#keys
  }
}
