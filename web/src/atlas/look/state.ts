/** What is being looked at. */
export interface State {
  /** The id of the measure that colours the grid. */
  readonly measure: string;
  /** The number of the head on the card. */
  readonly head: number;
  /** The label whose heads are made to stand out, or "". */
  readonly label: string;
}
