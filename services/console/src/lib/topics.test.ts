import { expect, test } from 'vitest'
import { branchOf, filterProblem, knownTopics, rowsOf, topicProblem, treeOf } from './topics'

test.each(['#', '+', 'a/+/b', 'a/#', '/a', '$SYS/#', '$share/group/a/+'])(
  '%s is a topic filter',
  (filter) => {
    expect(filterProblem(filter)).toBeNull()
  },
)

test.each(['', 'a#', 'a/#/b', 'a/b+', '+a'])('%j is no topic filter', (filter) => {
  expect(filterProblem(filter)).not.toBeNull()
})

test('a topic or filter of 4,096 bytes is valid, a longer one is not', () => {
  for (const problem of [topicProblem, filterProblem]) {
    expect(problem('a'.repeat(4096))).toBeNull()
    expect(problem('ä'.repeat(2049))).toContain('4,096')
  }
})

test('a filter shows a branch if # is its only wildcard', () => {
  expect([undefined, '#', 'a/#', 'a//#', 'a', 'a/+', '+/#', '/#'].map(branchOf)).toEqual([
    undefined,
    undefined,
    'a',
    'a/',
    null,
    null,
    null,
    '',
  ])
})

test('wildcards are in no topic', () => {
  expect(topicProblem('a/b')).toBeNull()
  for (const wrong of ['', 'a/+', '#']) expect(topicProblem(wrong)).not.toBeNull()
})

test('the tree joins levels that have one child, and counts topics', () => {
  const tree = treeOf(['plant/1/state', 'plant/1/temp', 'plant/2/state', 'x'].map((topic) => ({ topic })))
  const said = (open: string[]) =>
    rowsOf(tree, (topic) => open.includes(topic)).map(
      ({ label, depth, node }) => `${depth} ${label} ${node.count}`,
    )
  expect(said([])).toEqual(['0 plant 3', '0 x 1'])
  expect(said(['plant', 'plant/1'])).toEqual([
    '0 plant 3',
    '1 1 2',
    '2 state 1',
    '2 temp 1',
    '1 2/state 1',
    '0 x 1',
  ])
})

test('a topic with a value keeps its row, and empty levels are levels', () => {
  const tree = treeOf(['a', 'a/b/c', '/d'].map((topic) => ({ topic })))
  expect(rowsOf(tree, () => true).map(({ label }) => label)).toEqual(['/d', 'a', 'b/c'])
})

test('a topic that is retained and seen stands in the tree once', () => {
  const seen = { at: 1, qos: 0, bytes: 9, payload: null }
  const known = knownTopics(
    [{ topic: 'a', payload_bytes: 2 }],
    new Map([
      ['a', seen],
      ['b', seen],
    ]),
  )
  expect(known).toEqual([
    { topic: 'a', bytes: 2, isRetained: true, seen },
    { topic: 'b', bytes: 9, isRetained: false, seen },
  ])
})
