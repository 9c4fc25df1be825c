// The modules of the first pages, for their budget and for what the page names to the browser.

/** Everything that a browser runs before the overview of a broker is complete. */
export const FIRST_PAGE = [
  'src/main.tsx',
  'src/shell/Shell.tsx',
  'src/pages/broker/BrokerFrame.tsx',
  'src/pages/broker/Overview.tsx',
  'src/charts/Plot.tsx',
]
/** The same for operators. */
export const OPERATOR_PAGE = ['src/operator/main.tsx', 'src/operator/Overview.tsx']
