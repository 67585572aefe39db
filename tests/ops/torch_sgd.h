/* SPDX-License-Identifier: Apache-2.0
 *
 * Written by tests/oracle/optimizers.py: parameters cos(i) after steps of
 * torch.optim.SGD with gradients sin(1 + i + 3 t). */
enum { TORCH_STEPS = 5, TORCH_SIZE = 6 };
static const double torch_lr = 0.01;
static const struct {
    double momentum;
    bool nesterov;
    double weight_decay;
    double param[TORCH_SIZE];
} torch_sgd[] = {
    {0.0, false, 0.0,
     {0.9938219898584396, 0.5309988203888388,
      -0.42002221571973625, -0.9848767637272762,
      -0.6442401571558605, 0.2887078788389479}},
    {0.9, false, 0.0,
     {0.9798977534281239, 0.5183252046318875,
      -0.41979314692375547, -0.9719556151729832,
      -0.6305065732351428, 0.29062730440504975}},
    {0.9, false, 0.1,
     {0.9668802279287425, 0.5113372140442639,
      -0.41432687628013004, -0.9590607473188592,
      -0.6220385902078719, 0.28688297806229923}},
    {0.8, true, 0.1,
     {0.9666627401766579, 0.5088243743063953,
      -0.4168247747373404, -0.959247148173501,
      -0.619742117373819, 0.28955095805214554}},
};
